/* Convolutions of images, and products of matrices, with what follows them.
 *
 * Numbers are float32. An image is [n, height, width, channels], a matrix is an image of one row; a
 * weight lies in panels of `kPanel` results: [panels, taps, channels, kPanel], with zeros behind the
 * last result, or these are packed from it as it lies (products/weights.h). A tile is some pixels by some vectors of results: its sums stay in registers, while
 * the pixels under a tap are read by pointers, so that no image is copied. What follows is computed
 * while a tile is in the nearest cache.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/numbers.h>
#include <relax2xla/products/exchanged.h>
#include <relax2xla/products/few_rows.h>
#include <relax2xla/products/interleaved.h>
#include <relax2xla/products/joined.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/products/weights.h>
#include <relax2xla/products/winograd.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using relax2xla::kLanes;
using relax2xla::kLine;
using relax2xla::kPanel;
using relax2xla::load;
using relax2xla::numbers;
using relax2xla::store;
using relax2xla::Vector;
using relax2xla::Weight;

// Columns of the widest tile, and results of the largest.
constexpr int64_t kColumns = (relax2xla::kVectors + 1) * kLanes, kTile = relax2xla::kSums * kLanes;
// Channels that are added up at once: a panel of them passes through the nearest cache, which a panel
// of 256 would stay in, and takes 0.93 of that one's time. Columns whose sums wait for the next part
// of them.
constexpr int64_t kDepth = 768, kWidth = 1024;
// Rows of the tiles that are computed before what follows them is, where that is no part of a tile.
constexpr int64_t kBelow = 96;
// Numbers of an image that the second cache holds.
constexpr int64_t kNear = 48 * 1024;
// Pixels that are computed together where the next cache holds the weight, of so many numbers.
constexpr int64_t kTogether = 96, kLight = 64 * 1024;
// Numbers of an image that no near cache holds.
constexpr int64_t kLarge = 256 * 1024;
// Channels that are few.
constexpr int64_t kFew = 16;
// Numbers of a weight whose panels are kept for the pixels of further blocks, not packed for each.
constexpr int64_t kKept = 4 * 1024 * 1024;
// Multiplications that are worth a thread.
constexpr int64_t kWork = 500000;

/* A part of the sums: some taps whole, or some channels of one or of all. */
struct Part {
  int64_t tap, taps, channel, channels;
};

std::vector<Part> parts_of(int64_t taps, int64_t channels, const Weight& weight) {
  std::vector<Part> parts;
  if (weight.taps_last()) {
    // Some channels lie together; where rows of the window are taps, all of them do.
    const int64_t some = std::max<int64_t>(1, kDepth / taps / kLine) * kLine;
    const int64_t most = channels == weight.channels ? some : channels;
    const int64_t length = relax2xla::even_part(channels, most, kLine);
    for (int64_t c = 0; c < channels; c += length)
      parts.push_back({0, taps, c, std::min(length, channels - c)});
    return parts;
  }
  if (channels > kDepth) {
    const int64_t length = relax2xla::even_part(channels, kDepth, 8);
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t c = 0; c < channels; c += length)
        parts.push_back({t, 1, c, std::min(length, channels - c)});
    }
    return parts;
  }
  const int64_t each = relax2xla::even_part(taps, std::max<int64_t>(1, kDepth / channels));
  for (int64_t t = 0; t < taps; t += each)
    parts.push_back({t, std::min(each, taps - t), 0, channels});
  return parts;
}

/* Where a thread packs panels: those of columns from `begin` on, all their numbers, if they are `kept`
 * for the blocks behind the first, else those of one step. `due`: they have to be packed. */
struct Packing {
  float* memory;
  int64_t begin;
  bool kept, due;
};

/* The most numbers that a part has of a result. */
int64_t longest(const std::vector<Part>& parts) {
  int64_t most = 0;
  for (const Part& part : parts) most = std::max(most, part.taps * part.channels);
  return most;
}

/* Windows over images, and the results that they make. */
struct Convolution {
  const float* image;
  Weight weight;
  const float* bias;
  const float* added;
  float* result;
  int64_t height, width, channels;
  int64_t rows, columns, results, pixels;
  int64_t window_height, window_width, steps, step, top, left, dilated_rows, dilated_columns;
  int64_t ending;
  // Numbers from a pixel to the next, and from a result to the next; groups of channels.
  int64_t pitch, apart, groups;
  // The pixels around an image: zeros. The first channel.
  const float* nothing;
  int64_t first;
  Packing packing;
  // Whether the image is planes of channels, not pixels.
  bool planes = false;
  // What the pixels are gathered from, in the place of an image; windows are of one pixel then.
  const relax2xla::Joined* joined = nullptr;
  // How many channels are interleaved in panels (products/interleaved.h); if several, each of `groups`
  // is as many as fill a vector with their results.
  int64_t interleaved = 1;

  int64_t taps() const { return window_height * window_width; }
  /* Numbers that are added up for a result. */
  int64_t length() const { return taps() * channels / relax2xla::groups_beside(interleaved); }

  /* The same for one of the groups alone; the pixels are those of all. */
  Convolution of_group(int64_t group) const {
    Convolution c = *this;
    c.first += group * channels;
    c.weight.numbers += group * (interleaved > 1 ? results : relax2xla::in_panels(results)) * length();
    c.bias += group * results;
    c.added += added == nullptr ? 0 : group * results;
    c.result += group * results;
    return c;
  }

  /* The pixels under the windows of results [from, to), tap by tap. */
  void find(int64_t from, int64_t to, std::vector<const float*>& found) const {
    const int64_t count = to - from;
    found.resize(static_cast<size_t>(count * taps()));
    for (int64_t p = from, some; p < to; p += some) {
      const int64_t line = p / columns, x = p % columns;
      some = std::min(columns - x, to - p);
      const float* plane = image + line / rows * height * width * pitch;
      const float** at = found.data() + (p - from);
      for (int64_t i = 0; i < window_height; ++i) {
        const int64_t y = line % rows * steps - top + i * dilated_rows;
        for (int64_t j = 0; j < window_width; ++j, at += count) {
          if (y < 0 || y >= height) {
            std::fill_n(at, some, nothing);
            continue;
          }
          relax2xla::find_pixels(plane + y * width * pitch, width, pitch,
                                 x * step - left + j * dilated_columns, step, some, nothing, at);
        }
      }
    }
  }

  /* Pixels under the windows of results [from, to) come nearer where the image is large: windows
   * jump, so that the processor does not see what comes. `touched`: the end of what is near. */
  void fetch(int64_t from, int64_t to, const float*& touched) const {
    if (taps() == 1 || height * width * pitch < kLarge) return;
    const auto row_of = [&](int64_t line, int64_t behind) {
      const int64_t row = line % rows * steps - top + behind;
      return image + (line / rows * height + std::clamp<int64_t>(row, 0, height)) * width * pitch;
    };
    const int64_t reach = (window_height - 1) * dilated_rows + 1;
    const float* const end = row_of((to - 1) / columns, reach);
    for (const float* at = std::max(row_of(from / columns, 0), touched); at < end; at += 16)
      __builtin_prefetch(at, 0, 2);
    touched = std::max(end, touched);
  }

  /* What follows the sums of `count` pixels of `wide` columns, `apart` numbers from each other. */
  template <int64_t Ending>
  static void finish(float* sums, int64_t apart, int64_t count, int64_t wide) {
    for (int64_t r = 0; r < count; ++r, sums += apart) {
      for (int64_t c = 0; c < wide; c += kLanes)
        store(sums + c, relax2xla::activated<Ending>(load(sums + c)));
    }
  }

  /* What the results of a block see of a part: pixels, tap by tap, how far they are from each other,
   * or 0 where that differs, and their first number. */
  struct Seen {
    const float* const* pixels;
    int64_t stride, from;
  };

  /* Whether results see one pixel each, in their order. */
  bool even() const {
    return taps() == 1 && steps == 1 && step == 1 && top == 0 && left == 0 && rows == height &&
           columns == width;
  }

  /* A part of the pixels `under` `count` windows, those of results from `pixel` on; rows that are in
   * each other's way are copied. */
  Seen see(const Part& part, int64_t pixel, int64_t count, const float* const* under) const {
    const int64_t from = first + part.channel;
    if (joined == nullptr) {
      under += part.tap * count;
      if (!relax2xla::collide(pitch)) return {under, even() ? pitch : 0, from};
    }
    static thread_local std::vector<float> memory;
    static thread_local std::vector<const float*> copies;
    const int64_t stride = relax2xla::stride_of(part.channels), all = part.taps * count;
    copies.resize(static_cast<size_t>(all));
    float* const to = relax2xla::room(memory, all * stride);
    for (int64_t i = 0; i < all; ++i) copies[static_cast<size_t>(i)] = to + i * stride;
    if (joined != nullptr) {
      joined->gather(from, from + part.channels, pixel, count, to, stride);
    } else {
      for (int64_t i = 0; i < all; ++i)
        std::copy_n(under[i] + from, part.channels, to + i * stride);
    }
    return {copies.data(), stride, 0};
  }

  /* Results [from, to) of pixels, [begin, end) of columns. */
  struct Block {
    int64_t from, to, begin, end;
  };

  /* What tiles do one after the other with the same panels: the sums of `wide` columns from `column` on,
   * of a part of them, which is the first or the last or both. Panels are `next` numbers from each
   * other; those that are packed hold a `stretch`. */
  struct Step {
    const Part* part;
    int64_t column, wide;
    bool begins, ends;
    relax2xla::Stretch stretch;
    const float* panels;
    float* packed;
    int64_t next;
  };

  /* The steps of a block, all columns of a part before the next part. */
  void list(const Block& block, const std::vector<Part>& parts, std::vector<Step>& steps) const {
    const int64_t depth = taps() * channels;
    steps.clear();
    for (const Part& part : parts) {
      const int64_t length = part.taps * part.channels;
      const int64_t from = weight.taps_last() ? part.channel * weight.taps
                                              : part.tap * channels + part.channel;
      for (int64_t column = block.begin; column < block.end; column += steps.back().wide) {
        const int64_t vectors = (block.end - column + kLanes - 1) / kLanes;
        Step step{&part, column, relax2xla::tile_of(1, vectors, 0).vectors * kLanes};
        step.begins = &part == &parts.front();
        step.ends = &part == &parts.back();
        step.stretch = {from, length, std::min(part.channels, weight.channels)};
        step.next = depth * kPanel;
        if (weight.is_packed()) {
          step.panels = weight.numbers + column * depth + from * kPanel;
        } else if (packing.kept) {
          step.packed = packing.memory + (column - packing.begin) * depth + from * kPanel;
        } else {
          step.packed = packing.memory;
          step.next = length * kPanel;
        }
        if (step.packed != nullptr) step.panels = step.packed;
        steps.push_back(step);
      }
    }
  }

  /* A block from the pixels `under` its windows. */
  void run(const Block& block, const std::vector<Part>& parts, const float* const* under) const {
    static thread_local std::vector<Step> steps;
    list(block, parts, steps);
    Seen seen{};
    for (const Step& step : steps) {
      if (step.column == block.begin) seen = see(*step.part, block.from, block.to - block.from, under);
      if (packing.due)
        weight.pack_panels(step.column, step.wide, step.stretch, step.packed, step.next);
      tiles(block, step, &step == &steps.back() ? nullptr : &step + 1, seen);
    }
  }

  /* While panels are used, those of the step behind come nearer, or what they are packed from, or those
   * behind the block. */
  relax2xla::Ahead ahead(const Block& block, const Step& step, const Step* then,
                         int64_t tiles) const {
    const int64_t depth = taps() * channels;
    // The blocks before have seen to it that a small weight is near.
    const bool near = block.from > 0 && depth * results <= kLight;
    if (near || (then == nullptr && (packing.due || block.end >= results)))
      return relax2xla::nothing_ahead(step.stretch.count);
    if (packing.due) return weight.coming(then->column, then->stretch, tiles);
    if (then != nullptr) return relax2xla::ahead_of(then->panels, then->next, tiles);
    const float* const behind = step.panels - step.stretch.from * kPanel;
    return relax2xla::ahead_of(behind + (block.end - step.column) * depth, step.next, tiles);
  }

  /* The tiles of a step; `then` is the one behind it. */
  void tiles(const Block& block, const Step& step, const Step* then, Seen seen) const {
    const int64_t count = block.to - block.from, column = step.column, all = step.wide;
    const int64_t wide = std::min(all, block.end - column);
    const Part& part = *step.part;
    relax2xla::Tile tile = relax2xla::tile_of(count, all / kLanes, seen.stride);
    const bool whole = wide == all;
    float own[kColumns] = {}, made[kTile], other[kTile];
    const float* start = bias + column;
    if (!whole) start = std::copy_n(start, wide, own) - wide;
    const int64_t step_of_sums = whole ? apart : all;
    const int64_t tiles = (count + tile.rows - 1) / tile.rows;
    relax2xla::Ahead coming = ahead(block, step, then, tiles);
    relax2xla::Last last{nullptr, ending};
    for (int64_t p = 0, rows; p < count; p += rows) {
      if (count - p < tile.rows) tile = relax2xla::tile_of(count - p, tile.vectors, seen.stride);
      const int64_t some = whole ? std::min((count - p) / tile.rows, kBelow / tile.rows) : 1;
      rows = some * tile.rows;
      const int64_t at = (block.from + p) * apart + column;
      float* const out = result + at;
      if (added != nullptr && step.ends) {
        last.added = added + at;
        if (!whole) last.added = copied(last.added, apart, other, all, rows, wide);
      }
      if (!whole && !step.begins) copied(out, apart, made, all, rows, wide);
      float* const sums = whole ? out : made;
      tile.compute(some,
                   {seen.pixels + p, count, seen.stride, part.taps, seen.from, part.channels,
                    step.panels, step.next, step.begins ? start : nullptr,
                    step.ends ? &last : nullptr, sums, step_of_sums},
                   &coming);
      if (step.ends && !relax2xla::in_registers(ending)) {
        relax2xla::with_ending(ending, [&](auto known) {
          finish<decltype(known)::value>(sums, step_of_sums, rows, all);
        });
      }
      if (!whole) copied(made, all, out, apart, rows, wide);
    }
  }

  /* A block of groups whose channels are interleaved. */
  void run_interleaved(const Block& block, const float* const* under) const {
    const int64_t count = block.to - block.from;
    const int64_t own = channels / relax2xla::groups_beside(interleaved);
    const int64_t next = length() * (kPanel / interleaved);
    const Seen seen = see({0, taps(), 0, channels}, block.from, count, under);
    relax2xla::Last last{nullptr, ending};
    for (int64_t p = 0, rows; p < count; p += rows) {
      const auto tile = relax2xla::interleaved_tile_of(interleaved, count - p, own);
      rows = tile.rows;
      const int64_t at = (block.from + p) * apart;
      if (added != nullptr) last.added = added + at;
      tile.compute({seen.pixels + p, count, 0, taps(), seen.from, own, weight.numbers, next, bias,
                    &last, result + at, apart});
      if (!relax2xla::in_registers(ending)) {
        relax2xla::with_ending(ending, [&](auto known) {
          finish<decltype(known)::value>(result + at, apart, rows, kLanes);
        });
      }
    }
  }

  /* Rows of numbers, copied; where they are then. */
  static float* copied(const float* from, int64_t apart, float* to, int64_t apart_then,
                       int64_t count, int64_t wide) {
    for (int64_t r = 0; r < count; ++r) std::copy_n(from + r * apart, wide, to + r * apart_then);
    return to;
  }
};

/* A third of the numbers of pixels whose three channels are in vectors. */
template <int Third, int... Lane>
__attribute__((always_inline)) inline Vector woven(Vector a, Vector b, Vector c,
                                                   std::integer_sequence<int, Lane...>) {
  constexpr int kFirst = Third * kLanes;
  const Vector two = RELAX2XLA_SHUFFLE(a, b, ((kFirst + Lane) % 3 == 1 ? kLanes : 0) + (kFirst + Lane) / 3 ...);
  return RELAX2XLA_SHUFFLE(two, c, ((kFirst + Lane) % 3 == 2 ? kLanes + (kFirst + Lane) / 3 : Lane)...);
}

/* `count` pixels of a row, whose channels are in planes `apart` numbers from each other. */
void interleave(const float* from, int64_t apart, int64_t channels, int64_t count, float* to) {
  constexpr std::make_integer_sequence<int, kLanes> kAll{};
  int64_t done = 0;
  if (channels == 3) {
    for (; done + kLanes <= count; done += kLanes) {
      const float* const at = from + done;
      const Vector a = load(at), b = load(at + apart), c = load(at + 2 * apart);
      store(to + 3 * done, woven<0>(a, b, c, kAll));
      store(to + 3 * done + kLanes, woven<1>(a, b, c, kAll));
      store(to + 3 * done + 2 * kLanes, woven<2>(a, b, c, kAll));
    }
  }
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t x = done; x < count; ++x) to[x * channels + c] = from[x + c * apart];
}

/* Channels that are few: a row of the window is one tap of more, over an image with its padding,
 * unless that is far larger. */
void join_rows(Convolution& c, int64_t batch, std::vector<float>& padded) {
  const int64_t below = (c.rows - 1) * c.steps + (c.window_height - 1) * c.dilated_rows + 1;
  const int64_t behind = (c.columns - 1) * c.step + c.window_width;
  const int64_t height = std::max(below, c.top + c.height);
  const int64_t width = std::max(behind, c.left + c.width);
  if (height > 2 * c.height + 64 || width > 2 * c.width + 64) return;
  const int64_t line = width * c.channels, inner = c.width * c.channels, left = c.left * c.channels;
  float* const to = relax2xla::room(padded, batch * height * line);
  for (int64_t row = 0; row < batch * height; ++row) {
    const int64_t from = row % height - c.top;
    float* const made = to + row * line;
    if (from < 0 || from >= c.height) {
      std::fill_n(made, line, 0.0f);
      continue;
    }
    std::fill_n(made, left, 0.0f);
    const float* const image = c.image + row / height * c.height * inner;
    if (c.planes) {
      interleave(image + from * c.width, c.height * c.width, c.channels, c.width, made + left);
    } else {
      std::copy_n(image + from * inner, inner, made + left);
    }
    std::fill_n(made + left + inner, line - left - inner, 0.0f);
  }
  c.image = to;
  c.height = height;
  c.width = width;
  c.top = c.left = 0;
  c.channels *= c.window_width;
  c.window_width = 1;
}

/* All results, in blocks of pixels, groups, and blocks of columns. */
void compute(Convolution c) {
  // Kept from call to call: the system takes longer to give memory than it takes to fill it.
  static thread_local std::vector<float> padded;
  const bool one_group = c.groups == 1 && c.interleaved == 1;
  if (one_group && c.channels < kFew && c.window_width > 1 && c.dilated_columns == 1)
    join_rows(c, c.pixels / (c.rows * c.columns), padded);
  const std::vector<float> nothing(static_cast<size_t>(c.channels * c.groups), 0.0f);
  c.nothing = nothing.data();
  if (c.channels == c.weight.channels && relax2xla::Exchanged::pays(c.weight, c.pixels)) {
    static thread_local std::vector<const float*> under;
    c.find(0, c.pixels, under);
    relax2xla::Exchanged{under.data(), c.pixels, c.channels, c.weight, c.bias, c.added, c.result, c.results,
                         c.ending}
        .compute(kWork);
    return;
  }
  const std::vector<Part> parts = parts_of(c.taps(), c.channels, c.weight);
  const int64_t depth = c.length();
  const int64_t near = depth * c.results <= kLight ? kTogether : kNear / std::min(kDepth, depth);
  // A block of more pixels is worth it where it reads panels that are packed anew.
  const int64_t fold = c.weight.is_packed() ? 1 : 2;
  const int64_t most = fold * std::max<int64_t>(kTogether, near);
  const int64_t block = relax2xla::block_of(c.pixels, most);
  // Bands are some groups, or some columns of one.
  constexpr int64_t kLeast = relax2xla::kVectors * kLanes;
  const int64_t columns = (c.results + kLeast - 1) / kLeast;
  const relax2xla::Shares shares = relax2xla::shares_of(
      (c.pixels + block - 1) / block, c.groups > 1 ? c.groups : columns,
      c.pixels * c.groups * c.results * depth / kWork);
  const relax2xla::Pieces pieces{c.pixels, shares.pieces};
  relax2xla::each_part(shares.parts(), [&](int64_t part) {
    static thread_local std::vector<const float*> under;
    const float* touched = nullptr;
    relax2xla::Range groups{0, c.groups}, band{0, c.results};
    if (c.groups > 1) {
      groups = shares.band_of(part, c.groups);
    } else {
      const auto [begin, end] = shares.band_of(part, columns);
      band = {begin * kLeast, std::min(c.results, end * kLeast)};
    }
    const int64_t piece = shares.piece_of(part), last = pieces.begin(piece + 1);
    const int64_t length = relax2xla::block_of(last - pieces.begin(piece), most);
    const int64_t begin = pieces.begin(piece), wide = relax2xla::in_panels(band.end - band.begin);
    const bool again = last - begin > length && wide * depth <= kKept;
    Packing packing{nullptr, band.begin, again, false};
    if (!c.weight.is_packed()) {
      static thread_local std::vector<float> memory;
      constexpr int64_t kStep = relax2xla::in_panels(kColumns);
      packing.memory = relax2xla::room(memory, again ? wide * depth : kStep * longest(parts));
    }
    for (int64_t from = begin; from < last; from += length) {
      const int64_t to = std::min(last, from + length);
      if (c.joined == nullptr) {
        c.find(from, to, under);
        c.fetch(from, to, touched);
      }
      packing.due = !c.weight.is_packed() && (from == begin || !again);
      for (int64_t g = groups.begin; g < groups.end; ++g) {
        Convolution one = c.of_group(g);
        one.packing = packing;
        if (c.interleaved > 1) {
          one.run_interleaved({from, to, 0, c.results}, under.data());
          continue;
        }
        for (int64_t column = band.begin; column < band.end; column += kWidth)
          one.run({from, to, column, std::min(band.end, column + kWidth)}, parts, under.data());
      }
    }
  });
}

/* A weight of `taps` times `channels` numbers for each result, with what these are multiplied by: a
 * second row of the bias, if that has one. */
Weight weight_of(const DLTensor* weight, const DLTensor* bias, int64_t lies, int64_t taps,
                 int64_t channels, int64_t results) {
  ICHECK(lies >= relax2xla::kInPanels && lies <= relax2xla::kTurned) << "a weight lies so or so";
  const float* const scale = bias->ndim == 2 ? numbers(bias) + bias->shape[1] : nullptr;
  return {numbers(weight), lies, scale, taps, channels, results};
}

void convolve(const DLTensor* image, const DLTensor* weight, const DLTensor* bias,
              const DLTensor* added, int64_t window_height, int64_t window_width, int64_t steps,
              int64_t step, int64_t top, int64_t left, int64_t dilated_rows,
              int64_t dilated_columns, int64_t groups, int64_t planes, int64_t lies,
              int64_t is_added, int64_t ending, const DLTensor* result) {
  const int64_t *from = image->shape + (planes ? 1 : 0), *to = result->shape;
  const int64_t all = planes ? image->shape[1] : image->shape[3];
  const int64_t taps = window_height * window_width, channels = all / groups;
  const int64_t interleaved = relax2xla::interleaving_of(channels, to[3] / groups, groups);
  const int64_t units = groups / relax2xla::groups_beside(interleaved);
  compute({numbers(image), weight_of(weight, bias, lies, taps, channels, to[3] / groups),
           numbers(bias), is_added ? numbers(added) : nullptr, static_cast<float*>(result->data),
           from[1], from[2], all / units, to[1], to[2], to[3] / units, to[0] * to[1] * to[2],
           window_height, window_width, steps, step, top, left, dilated_rows, dilated_columns,
           ending, all, to[3], units, nullptr, 0, {}, planes != 0, nullptr, interleaved});
}

/* A product of the rows that lie at `rows`, or nowhere yet, and a matrix: windows of one pixel. */
Convolution product_of(const float* rows, const Weight& weight, const float* bias, const float* added,
                       int64_t ending, const DLTensor* result) {
  int64_t count = 1;
  for (int32_t axis = 0; axis + 1 < result->ndim; ++axis) count *= result->shape[axis];
  const int64_t channels = weight.channels, results = result->shape[result->ndim - 1];
  return {rows,  weight, bias, added,    static_cast<float*>(result->data), 1, count, channels, 1,
          count, results, count, 1, 1, 1, 1, 0, 0, 1, 1, ending, channels, results, 1, nullptr, 0, {}};
}

void multiply(const DLTensor* rows, const DLTensor* weight, const DLTensor* bias,
              const DLTensor* added, int64_t lies, int64_t is_added, int64_t ending,
              const DLTensor* result) {
  const int64_t channels = rows->shape[rows->ndim - 1], results = result->shape[rows->ndim - 1];
  const float* const other = is_added ? numbers(added) : nullptr;
  const Weight matrix = weight_of(weight, bias, lies, 1, channels, results);
  const Convolution all = product_of(numbers(rows), matrix, numbers(bias), other, ending, result);
  if (all.pixels <= relax2xla::kFewRows && matrix.is_packed()) {
    relax2xla::FewRows{all.image, matrix.numbers, all.bias, other, all.result, channels, results,
                       ending}
        .compute(all.pixels);
    return;
  }
  compute(all);
}

/* Matrices, what they are multiplied by and what is added to them if they are `prepared`, the weight, the
 * bias and what is added; then `prepared`, `is_added` and the ending, and the result. */
int multiply_joined(const relax2xla::Argument* arguments, int32_t count) {
  constexpr int kOthers = 7;
  ICHECK(count > kOthers + 1) << "there are a matrix and " << kOthers << " others";
  const auto tensor = [&](int i) { return relax2xla::Read<const DLTensor*>::from(arguments[i], i); };
  const auto integer = [&](int i) { return relax2xla::Read<int64_t>::from(arguments[i], i); };
  int at = count - kOthers;
  const float *const panels = numbers(tensor(at)), *const bias = numbers(tensor(at + 1));
  const float* const added = numbers(tensor(at + 2));
  const bool is_prepared = integer(at + 3) != 0, is_added = integer(at + 4) != 0;
  const int64_t ending = integer(at + 5);
  const DLTensor* const result = tensor(at + 6);
  relax2xla::Joined joined;
  if (is_prepared) {
    const DLTensor* const by = tensor(--at);
    joined.scale = numbers(by);
    joined.shift = joined.scale + by->shape[1];
  }
  for (int i = 0; i < at; ++i)
    joined.matrices.push_back({numbers(tensor(i)), tensor(i)->shape[tensor(i)->ndim - 1]});
  const int64_t channels = joined.columns(), results = result->shape[result->ndim - 1];
  const Weight weight{panels, relax2xla::kInPanels, nullptr, 1, channels, results};
  Convolution all = product_of(nullptr, weight, bias, is_added ? added : nullptr, ending, result);
  all.joined = &joined;
  compute(all);
  return 0;
}

template <int64_t Size>
void by_winograd(const DLTensor* image, Weight weight, const DLTensor* bias,
                 const DLTensor* added, int64_t top, int64_t left, int64_t is_added, int64_t ending,
                 const DLTensor* result) {
  const int64_t *from = image->shape, *to = result->shape;
  ICHECK(from[3] % kPanel == 0 && to[3] % kPanel == 0) << "channels fill panels";
  // Results are fewer than the values of windows, and multiplied in an addition.
  const float* const scale = std::exchange(weight.scale, nullptr);
  relax2xla::Winograd<Size>{numbers(image), weight, scale, numbers(bias),
                            is_added ? numbers(added) : nullptr,
                            static_cast<float*>(result->data), from[0], from[1], from[2], from[3],
                            to[1], to[2], to[3], top, left, ending}
      .compute(kWork);
}

void winograd(const DLTensor* image, const DLTensor* weight, const DLTensor* bias,
              const DLTensor* added, int64_t size, int64_t top, int64_t left, int64_t lies,
              int64_t is_added, int64_t ending, const DLTensor* result) {
  const Weight given = weight_of(weight, bias, lies, 9, image->shape[3], result->shape[3]);
  if (size == 2) {
    by_winograd<2>(image, given, bias, added, top, left, is_added, ending, result);
  } else {
    ICHECK(size == 4) << "patches make 2x2 results or 4x4";
    by_winograd<4>(image, given, bias, added, top, left, is_added, ending, result);
  }
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_products_convolve, convolve);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_products_multiply, multiply);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_products_winograd, winograd);

extern "C" TVM_DLL int relax2xla_call_relax2xla_products_multiply_joined(
    const relax2xla::Argument* arguments, int32_t count, char* message, size_t size) {
  return relax2xla::guarded([&] { return multiply_joined(arguments, count); }, message, size);
}

/* Convolutions of planes with as many groups as channels, also of a product that is made as far as it
 * is read, and the gradient of their weight.
 *
 * Numbers are float32. Images are [n, height, width, channels], or [n, channels, height, width]
 * where a call says that channels come first; weights are [height, width, 1, channels]. Channels are
 * computed in blocks of 16, which are one vector or two. Pixels of some rows are copied into lines of
 * such blocks, with the padding around them, so that they lie together in the nearest cache, and
 * each is read once for all its taps in a row of the window.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using relax2xla::kLanes;
using relax2xla::kPanel;
using relax2xla::load;
using relax2xla::store;
using relax2xla::turn;
using relax2xla::Vector;

// Channels of a block: a line of the cache. Vectors of them.
constexpr int kBlock = kPanel, kVectors = kBlock / kLanes;
// Results that are summed up together: with a row of the window, what registers hold.
constexpr int kPixels = kLanes == 16 ? 14 : 7;
// Taps in a row of the window.
constexpr int kWidest = 7;
// Numbers of the lines of an image, and multiplications that are worth a thread.
constexpr int64_t kNear = 24 * 1024;
// Numbers of the lines of all channels of a product.
constexpr int64_t kShared = 96 * 1024;
// How many pixels behind the one that is read come nearer.
constexpr int64_t kAhead = 12;
constexpr int64_t kWork = 100000;
// Pixels of an image that each thread has at least where threads share them.
constexpr int64_t kTogether = 96;

/* Where the numbers of four axes are, whichever of the two orders they lie in. */
struct Image {
  float* data;
  int64_t n, height, width, channels;
  bool first;

  Image(const DLTensor* t, bool channels_first)
      : data(static_cast<float*>(t->data)), first(channels_first) {
    ICHECK(t->ndim == 4 && t->dtype.code == kDLFloat && t->dtype.bits == 32)
        << "an image has four axes, and is of float32";
    n = t->shape[0];
    channels = t->shape[first ? 1 : 3];
    height = t->shape[first ? 2 : 1];
    width = t->shape[first ? 3 : 2];
  }

  float* row(int64_t b, int64_t channel, int64_t y) const {
    return first ? data + ((b * channels + channel) * height + y) * width
                 : data + (b * height + y) * width * channels + channel;
  }
};

/* Channels that are computed together. */
struct Channels {
  int64_t from;
  int count;

  int vectors() const { return (count + kLanes - 1) / kLanes; }
  int of_vector(int vector) const { return std::min(kLanes, count - vector * kLanes); }
};

/* Channels in blocks. Where they lie together, the last block overlaps the one before it, so that it
 * fills its vectors. */
struct Blocks {
  int64_t channels;
  bool overlap;

  int64_t count() const { return (channels + kBlock - 1) / kBlock; }
  Channels operator[](int64_t block) const {
    const int64_t from = block * kBlock;
    const Channels c{from, static_cast<int>(std::min<int64_t>(kBlock, channels - from))};
    const int whole = c.vectors() * kLanes;
    return overlap && channels >= whole ? Channels{std::min(from, channels - whole), whole} : c;
  }
};

// -- planes and lines ----------------------------------------------------------------------------
/* Blocks in rows of `width`, the first of a row `pitch` numbers behind that of the row before. */
struct Lines {
  float* data;
  int64_t width, pitch;

  float* at(int64_t pixel) const { return data + pixel / width * pitch + pixel % width * kBlock; }
};

/* Rows [y, y + rows) of one image as blocks. */
void read(const Image& image, int64_t b, Channels channels, int64_t y, int64_t rows,
          const Lines& lines) {
  const int64_t plane = image.height * image.width, pixels = rows * image.width;
  if (!image.first) {
    const float* from = image.row(b, channels.from, y);
    for (int64_t p = 0; p < rows; ++p) {
      float* to = lines.data + p * lines.pitch;
      for (int64_t q = 0; q < image.width; ++q, to += kBlock, from += image.channels) {
        if (channels.count == kBlock) {
          __builtin_prefetch(from + kAhead * image.channels);
          for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, load(from + v * kLanes));
        } else {
          std::copy_n(from, channels.count, to);
        }
      }
    }
    return;
  }
  for (int v = 0; v < channels.vectors(); ++v) {
    const float* const from = image.row(b, channels.from + v * kLanes, y);
    const int count = channels.of_vector(v);
    int64_t p = 0;
    for (; p + kLanes <= pixels && count == kLanes; p += kLanes) {
      Vector block[kLanes];
      relax2xla::load_turned(from + p, plane, block);
      for (int c = 0; c < kLanes; ++c) store(lines.at(p + c) + v * kLanes, block[c]);
    }
    for (; p < pixels; ++p) {
      float* const to = lines.at(p) + v * kLanes;
      for (int c = 0; c < count; ++c) to[c] = from[c * plane + p];
    }
  }
}

/* The other way. */
void write(const Image& image, int64_t b, Channels channels, int64_t y, int64_t rows,
           const Lines& lines) {
  const int64_t plane = image.height * image.width, pixels = rows * image.width;
  if (!image.first) {
    float* const to = image.row(b, channels.from, y);
    for (int64_t p = 0; p < pixels; ++p)
      std::copy_n(lines.at(p), channels.count, to + p * image.channels);
    return;
  }
  for (int v = 0; v < channels.vectors(); ++v) {
    float* const to = image.row(b, channels.from + v * kLanes, y);
    const int count = channels.of_vector(v);
    int64_t p = 0;
    for (; p + kLanes <= pixels && count == kLanes; p += kLanes) {
      Vector block[kLanes];
      for (int c = 0; c < kLanes; ++c) block[c] = load(lines.at(p + c) + v * kLanes);
      turn(block);
      for (int c = 0; c < kLanes; ++c) store(to + c * plane + p, block[c]);
    }
    for (; p < pixels; ++p) {
      const float* const from = lines.at(p) + v * kLanes;
      for (int c = 0; c < count; ++c) to[c * plane + p] = from[c];
    }
  }
}

/* Memory of this thread, with what it had before. */
float* memory_of(int64_t numbers) {
  static thread_local std::vector<float> memory;
  return relax2xla::room(memory, numbers);
}

/* Of `width` blocks that lie together: where `out` says, `apart` numbers from each other. */
void finish(const float* sums, float* out, int64_t apart, int64_t width, int vectors,
            int64_t ending) {
  relax2xla::with_ending(ending, [&](auto known) {
    for (int64_t p = 0; p < width; ++p, sums += kBlock, out += apart) {
      for (int v = 0; v < vectors * kLanes; v += kLanes)
        store(out + v, relax2xla::activated<decltype(known)::value>(load(sums + v)));
    }
  });
}

/* An image that is a product: pixels of `given` channels by a weight in panels, and what follows.
 * It is never there as a whole. */
struct Product {
  const float *rows, *panels, *bias;
  int64_t n, height, width, channels, given, ending;

  /* Rows [y, y + rows) as blocks. */
  void read(int64_t b, Channels channels, int64_t y, int64_t count, const Lines& lines) const {
    constexpr int64_t kShort = 28;
    float added[kBlock] = {};
    std::copy_n(bias + channels.from, channels.count, added);
    const float* const panel = panels + channels.from / kPanel * given * kPanel;
    const int vectors = channels.vectors();
    // Meanwhile the weight of the next channels comes nearer.
    constexpr int64_t kRows = relax2xla::kTileRows;
    const int64_t pixels = count * width, tiles = (pixels + kRows - 1) / kRows;
    const int64_t next = given * kPanel;
    relax2xla::Ahead ahead{nullptr, 0, given};
    if (channels.from + kPanel < this->channels) ahead = relax2xla::ahead_of(panel + next, next, tiles);
    const float* const from = rows + (b * height + y) * width * given;
    // Tiles of short rows would be small ones: all rows are one, and put apart then.
    const bool is_short = width < kShort;
    static thread_local std::vector<float> memory;
    float* together = nullptr;
    if (is_short) {
      together = relax2xla::room(memory, pixels * kBlock);
      multiply(from, pixels, panel, vectors, added, &ahead, together);
    }
    for (int64_t line = 0; line < count; ++line) {
      float* const to = lines.data + line * lines.pitch;
      if (is_short) {
        std::copy_n(together + line * width * kBlock, width * kBlock, to);
      } else {
        multiply(from + line * width * given, width, panel, vectors, added, &ahead, to);
      }
    }
  }

 private:
  /* `count` pixels by a panel, or its first vectors. */
  void multiply(const float* from, int64_t count, const float* panel, int vectors,
                const float* added, relax2xla::Ahead* ahead, float* to) const {
    const relax2xla::Last last{nullptr, ending};
    for (int64_t p = 0, some; p < count; p += some) {
      const relax2xla::Tile tile = relax2xla::tile_of(count - p, vectors, given);
      const int64_t tiles = (count - p) / tile.rows;
      some = tiles * tile.rows;
      const float* const pixel = from + p * given;
      tile.compute(tiles,
                   {&pixel, 1, given, 1, 0, given, panel, given * kPanel, added, &last,
                    to + p * kBlock, kBlock},
                   ahead);
    }
    if (!relax2xla::in_registers(ending)) finish(to, to, kBlock, count, vectors, ending);
  }
};

// -- rows of results -----------------------------------------------------------------------------
/* A vector of `Pixels` neighbours: under them lie `rows` lines, the first of their taps at `pixels`. */
template <int Width, int Step, int Pixels>
void results(const float* pixels, int64_t pitch, int64_t rows, const float* weight, Vector bias,
             float* out, int64_t apart) {
  Vector sum[Pixels];
#pragma GCC unroll 16
  for (int p = 0; p < Pixels; ++p) sum[p] = bias;
  for (int64_t i = 0; i < rows; ++i, pixels += pitch, weight += Width * kBlock) {
    Vector taps[Width];
#pragma GCC unroll 8
    for (int j = 0; j < Width; ++j) taps[j] = load(weight + j * kBlock);
#pragma GCC unroll 64
    for (int q = 0; q < (Pixels - 1) * Step + Width; ++q) {
      const Vector pixel = load(pixels + q * kBlock);
#pragma GCC unroll 8
      for (int j = 0; j < Width; ++j) {
        const int p = (q - j) / Step;
        if (q >= j && (q - j) % Step == 0 && p < Pixels) sum[p] += taps[j] * pixel;
      }
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < Pixels; ++p) store(out + p * apart, sum[p]);
}

/* `width` neighbours. */
template <int Width, int Step>
void row_of_results(const float* pixels, int64_t pitch, int64_t rows, const float* weight,
                    Vector bias, float* out, int64_t apart, int64_t width) {
  constexpr int64_t next = Step * kBlock;
  int64_t at = 0;
  for (; at + kPixels <= width; at += kPixels) {
    results<Width, Step, kPixels>(pixels + at * next, pitch, rows, weight, bias, out + at * apart,
                                  apart);
  }
  for (; at + 4 <= width; at += 4) {
    results<Width, Step, 4>(pixels + at * next, pitch, rows, weight, bias, out + at * apart, apart);
  }
  for (; at < width; ++at) {
    results<Width, Step, 1>(pixels + at * next, pitch, rows, weight, bias, out + at * apart, apart);
  }
}

/* To a vector of the sums of a row of the window: what is under its taps times `width` gradients. */
template <int Width, int Step>
void row_of_sums(const float* pixels, const float* gradient, int64_t width, float* sums) {
  constexpr int kSome = 4;
  // Sums that wait for each other are more than one for a tap.
  constexpr int kSets = Width < 4 ? 2 : 1;
  Vector sum[kSets][Width] = {};
  int64_t at = 0;
  for (; at + kSome <= width; at += kSome) {
    Vector given[kSome];
#pragma GCC unroll 8
    for (int p = 0; p < kSome; ++p) given[p] = load(gradient + (at + p) * kBlock);
#pragma GCC unroll 32
    for (int q = 0; q < (kSome - 1) * Step + Width; ++q) {
      const Vector pixel = load(pixels + (at * Step + q) * kBlock);
#pragma GCC unroll 8
      for (int j = 0; j < Width; ++j) {
        const int p = (q - j) / Step;
        if (q >= j && (q - j) % Step == 0 && p < kSome) sum[p % kSets][j] += given[p] * pixel;
      }
    }
  }
  for (; at < width; ++at) {
    const Vector given = load(gradient + at * kBlock);
    for (int j = 0; j < Width; ++j) sum[0][j] += given * load(pixels + (at * Step + j) * kBlock);
  }
  for (int j = 0; j < Width; ++j) {
    Vector total = load(sums + j * kBlock) + sum[0][j];
    if constexpr (kSets > 1) total += sum[1][j];
    store(sums + j * kBlock, total);
  }
}

/* `call` with the width of the window and the step along a row as numbers of the compiler. */
template <int Width = 1, typename F>
void with_sizes(int64_t width, int64_t step, F call) {
  if constexpr (Width > kWidest) {
    ICHECK(false) << "a row of the window has at most " << kWidest << " taps";
  } else if (width != Width) {
    with_sizes<Width + 1>(width, step, call);
  } else if (step == 1) {
    call(std::integral_constant<int, Width>{}, std::integral_constant<int, 1>{});
  } else {
    ICHECK(step == 2) << "windows are one pixel apart, or two";
    call(std::integral_constant<int, Width>{}, std::integral_constant<int, 2>{});
  }
}

// -- the functions -------------------------------------------------------------------------------
/* Windows over an image, and the lines that lie under bands of their rows. */
struct Windows {
  int64_t height, width, steps, step, top, left;
  // Rows of windows; pieces of these, and how many rows are in a band of a piece.
  int64_t rows, pieces, band;
  // Pixels of a line, without and with the padding on both sides; numbers from a line to the next.
  int64_t inside, line, pitch;

  template <typename Source>
  Windows(const Source& image, const Image& result, int64_t height, int64_t width, int64_t steps,
          int64_t step, int64_t top, int64_t left, int64_t near = kNear, int64_t pieces = 1)
      : height(height), width(width), steps(steps), step(step), top(top), left(left),
        rows(result.height), pieces(pieces), inside(image.width) {
    line = std::max((result.width - 1) * step + width, left + image.width);
    pitch = line * kBlock;
    band = std::clamp<int64_t>((near / pitch - height) / steps + 1, 1, longest());
  }

  int64_t longest() const { return (rows + pieces - 1) / pieces; }
  int64_t bands() const { return (longest() + band - 1) / band; }
  /* The rows of a band of a piece; the last one may be empty. */
  relax2xla::Range rows_of(int64_t piece, int64_t of_piece) const {
    const int64_t end = (piece + 1) * rows / pieces;
    const int64_t begin = std::min(end, piece * rows / pieces + of_piece * band);
    return {begin, std::min(end, begin + band)};
  }
  int64_t lines() const { return (band - 1) * steps + height; }
  int64_t numbers() const { return lines() * pitch; }

  /* Zeros for the padding of the lines in `memory`. */
  void pad(float* memory) const {
    for (int64_t i = 0; i < lines(); ++i, memory += pitch) {
      std::fill_n(memory, left * kBlock, 0.0f);
      std::fill_n(memory + (left + inside) * kBlock, (line - left - inside) * kBlock, 0.0f);
    }
  }

  /* Lines, of all there are, under the rows [y, y + count) of windows: the first, and how many. */
  std::pair<int64_t, int64_t> under(int64_t lines, int64_t y, int64_t count) const {
    const int64_t from = std::max<int64_t>(0, y * steps - top);
    const int64_t to = std::min(lines, (y + count - 1) * steps - top + height);
    return {from, std::max<int64_t>(0, to - from)};
  }

  /* Put lines of the image into `memory`, between the padding. */
  void fill(float* memory, const Image& image, int64_t b, Channels channels, int64_t from,
            int64_t count) const {
    read(image, b, channels, from, count, Lines{memory + left * kBlock, image.width, pitch});
  }
  void fill(float* memory, const Product& image, int64_t b, Channels channels, int64_t from,
            int64_t count) const {
    image.read(b, channels, from, count, Lines{memory + left * kBlock, image.width, pitch});
  }
};

/* Lines of one block of channels of an image that are in memory. Those that the next band reads as
 * well are not made again. */
struct Held {
  int64_t block = -1, b = -1, low = 0, many = 0;

  /* How many of the `count` lines from `first` on are there, now at the beginning. */
  int64_t kept(float* lines, int64_t pitch, int64_t of_block, int64_t of, int64_t first, int64_t count) {
    const bool goes_on = of_block == block && of == b && first >= low && first < low + many;
    const int64_t both = goes_on ? std::min(count, low + many - first) : 0;
    if (both > 0 && first > low)
      std::copy_n(lines + (first - low) * pitch, both * pitch, lines);
    *this = {of_block, of, first, count};
    return both;
  }
};

/* A block of channels that is computed: the lines under a band, the weight, and the bias. */
struct Side {
  float *lines, *weight;
  int64_t block = -1;
  Held held;
  Vector bias[kVectors] = {};

  void take(int64_t next, Channels c, const DLTensor* weights, const DLTensor* biases) {
    if (next == block) return;
    block = next;
    const int64_t taps = weights->shape[0] * weights->shape[1], channels = weights->shape[3];
    std::copy_n(static_cast<const float*>(biases->data) + c.from, c.count,
                reinterpret_cast<float*>(bias));
    for (int64_t t = 0; t < taps; ++t) {
      const float* const tap = static_cast<const float*>(weights->data) + t * channels + c.from;
      std::copy_n(tap, c.count, weight + t * kBlock);
    }
  }
};

/* Each band of each block of channels, from an Image or a Product. `sides`: how many blocks take
 * turns on a band; `near`: the numbers of their lines; `work`: multiplications for a result. */
template <typename Source>
void convolved(const Source& from, const DLTensor* weight, const DLTensor* bias, int64_t steps,
               int64_t step, int64_t top, int64_t left, int64_t ending, const Image& to,
               const Blocks& blocks, int64_t sides, int64_t near, int64_t work) {
  const int64_t height = weight->shape[0], width = weight->shape[1], taps = height * width;
  // As products do, threads share the pixels of a large image, and the channels of a small one: each
  // finds near what it has made.
  const int64_t all = relax2xla::count_threads();
  const bool shared = to.height >= all && to.height * to.width >= kTogether * all;
  const Windows w(from, to, height, width, steps, step, top, left, near, shared ? all : 1);
  auto run = [&](auto compiled_width, auto compiled_step) {
    constexpr int Width = decltype(compiled_width)::value, Step = decltype(compiled_step)::value;
    const int64_t of_piece = blocks.count() * w.bands(), unit_work = w.band * to.width * work * kBlock;
    relax2xla::in_ranges(from.n * w.pieces * of_piece, kWork / unit_work, [&](int64_t begin, int64_t end) {
      const int64_t of_side = w.numbers() + taps * kBlock;
      float* const memory = memory_of(sides * of_side + w.band * to.width * kBlock);
      float* const made = memory + sides * of_side;
      std::vector<Side> at(static_cast<size_t>(sides));
      for (int64_t i = 0; i < sides; ++i) {
        Side& side = at[static_cast<size_t>(i)];
        side.lines = memory + i * of_side;
        side.weight = side.lines + w.numbers();
        w.pad(side.lines);
      }
      for (int64_t unit = begin; unit < end; ++unit) {
        // Blocks side by side take turns on a band.
        const int64_t piece = unit / of_piece, b = piece / w.pieces, in_piece = unit % of_piece;
        const int64_t first = in_piece / (sides * w.bands()) * sides;
        const int64_t beside = std::min(sides, blocks.count() - first);
        const int64_t within = in_piece - first * w.bands();
        const auto [y, beyond] = w.rows_of(piece % w.pieces, within / beside);
        const int64_t rows = beyond - y;
        if (rows == 0) continue;
        Side& side = at[static_cast<size_t>(within % beside)];
        const Channels c = blocks[first + within % beside];
        side.take(first + within % beside, c, weight, bias);
        const auto [low, many] = w.under(from.height, y, rows);
        const int64_t kept = side.held.kept(side.lines, w.pitch, side.block, b, low, many);
        if (kept < many)
          w.fill(side.lines + kept * w.pitch, from, b, c, low + kept, many - kept);
        const bool direct = !to.first && c.count % kLanes == 0;
        for (int64_t r = 0; r < rows; ++r) {
          const auto [line, under] = w.under(from.height, y + r, 1);
          float* const sums = made + r * to.width * kBlock;
          float* const out = direct ? to.row(b, c.from, y + r) : sums;
          const int64_t apart = direct ? to.channels : kBlock;
          const bool last = ending == relax2xla::kNone;
          const int64_t cut = line - ((y + r) * steps - top);
          for (int v = 0; v < c.vectors(); ++v) {
            row_of_results<Width, Step>(side.lines + (line - low) * w.pitch + v * kLanes, w.pitch,
                                        under, side.weight + cut * width * kBlock + v * kLanes,
                                        side.bias[v], (last ? out : sums) + v * kLanes,
                                        last ? apart : kBlock, to.width);
          }
          if (!last) finish(sums, out, apart, to.width, c.vectors(), ending);
        }
        if (!direct) write(to, b, c, y, rows, Lines{made, to.width, to.width * kBlock});
      }
    });
  };
  with_sizes(width, step, run);
}

void convolve(const DLTensor* image, const DLTensor* weight, const DLTensor* bias, int64_t steps,
              int64_t step, int64_t top, int64_t left, int64_t image_first, int64_t result_first,
              int64_t ending, const DLTensor* result) {
  const Image from(image, image_first != 0), to(result, result_first != 0);
  convolved(from, weight, bias, steps, step, top, left, ending, to,
            Blocks{to.channels, !from.first && !to.first}, 1, kNear,
            weight->shape[0] * weight->shape[1]);
}

void convolve_product(const DLTensor* rows, const DLTensor* panels, const DLTensor* first_bias,
                      const DLTensor* weight, const DLTensor* bias, int64_t steps, int64_t step,
                      int64_t top, int64_t left, int64_t result_first, int64_t first_ending,
                      int64_t ending, const DLTensor* result) {
  const Image given(rows, false), to(result, result_first != 0);
  const auto numbers = [](const DLTensor* t) { return static_cast<const float*>(t->data); };
  const Product from{given.data,   numbers(panels), numbers(first_bias), given.n,
                     given.height, given.width,     to.channels,         given.channels,
                     first_ending};
  // Blocks do not overlap: they begin where those of the panels do. All of them read the pixels of a
  // band while these are near.
  const Blocks blocks{to.channels, false};
  convolved(from, weight, bias, steps, step, top, left, ending, to, blocks, blocks.count(),
            kShared / blocks.count(),
            weight->shape[0] * weight->shape[1] + given.channels * steps * step);
}

void weight_gradient(const DLTensor* image, const DLTensor* gradient, int64_t steps, int64_t step,
                     int64_t top, int64_t left, int64_t image_first, int64_t gradient_first,
                     const DLTensor* result) {
  const Image from(image, image_first != 0), given(gradient, gradient_first != 0);
  auto* sums = static_cast<float*>(result->data);
  const int64_t height = result->shape[0], width = result->shape[1], taps = height * width;
  const Windows w(from, given, height, width, steps, step, top, left);
  const Blocks blocks{given.channels, !from.first && !given.first};
  auto run = [&](auto compiled_width, auto compiled_step) {
    constexpr int Width = decltype(compiled_width)::value, Step = decltype(compiled_step)::value;
    const int64_t work = given.n * given.height * given.width * taps * kBlock;
    relax2xla::in_ranges(blocks.count(), kWork / work, [&](int64_t begin, int64_t end) {
      float* lines = memory_of(w.numbers() + (taps + w.band * given.width) * kBlock);
      w.pad(lines);
      float* own = lines + w.numbers();
      float* factors = own + taps * kBlock;
      for (int64_t block = begin; block < end; ++block) {
        const Channels c = blocks[block];
        std::fill_n(own, taps * kBlock, 0.0f);
        for (int64_t unit = 0; unit < given.n * w.bands(); ++unit) {
          const int64_t b = unit / w.bands();
          const auto [y, beyond] = w.rows_of(0, unit % w.bands());
          const int64_t rows = beyond - y;
          const auto [low, many] = w.under(from.height, y, rows);
          w.fill(lines, from, b, c, low, many);
          read(given, b, c, y, rows, Lines{factors, given.width, given.width * kBlock});
          for (int64_t r = 0; r < rows; ++r) {
            const auto [line, under] = w.under(from.height, y + r, 1);
            const int64_t cut = line - ((y + r) * steps - top);
            for (int64_t i = 0; i < under; ++i) {
              for (int v = 0; v < c.vectors() * kLanes; v += kLanes) {
                row_of_sums<Width, Step>(lines + (line - low + i) * w.pitch + v,
                                         factors + r * given.width * kBlock + v, given.width,
                                         own + (cut + i) * width * kBlock + v);
              }
            }
          }
        }
        for (int64_t t = 0; t < taps; ++t)
          std::copy_n(own + t * kBlock, c.count, sums + t * given.channels + c.from);
      }
    });
  };
  with_sizes(width, step, run);
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_depthwise_convolve, convolve);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_depthwise_convolve_product, convolve_product);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_depthwise_weight_gradient, weight_gradient);

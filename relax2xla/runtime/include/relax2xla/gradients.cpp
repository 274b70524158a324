/* Gradients of the weights of convolutions and products: sums of products over all pixels.
 *
 * Numbers are float32. The image is [n, height, width, channels], the gradient of the result is
 * [n, rows, columns, results]. A gradient of a weight is a product of two matrices with a row for each
 * result pixel, of which the first is turned: what lies under the taps of its window, and its gradients.
 * Both are gathered into panels some pixels at a time, and a tile of sums stays in registers meanwhile.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/pages.h>
#include <relax2xla/products/interleaved.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/threads.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using relax2xla::kLanes;
using relax2xla::kPanel;
using relax2xla::kVectors;
using relax2xla::load;
using relax2xla::load_first;
using relax2xla::store;
using relax2xla::store_first;
using relax2xla::Vector;

// Pixels that are added up at once: panels of rows of so many stay in the nearest cache.
constexpr int64_t kDepth = 512;
// Panels of columns that are gathered together: so many times `kDepth` stay in the second cache.
constexpr int64_t kTogether = kLanes == 16 ? 32 : 16;
// Numbers of a row of an image that are many.
constexpr int64_t kWide = 192;
// Neighbours that are gathered together, numbers of a few lines of the cache.
constexpr int64_t kBand = 4;
// Panels that a tile reads, and the most rows of one.
constexpr int64_t kBeside = std::max(1, kVectors * kLanes / kPanel);
constexpr int kRows = std::min(relax2xla::kMostRows, relax2xla::kSums / kVectors);
// Pixels ahead of which panels come nearer.
constexpr int64_t kAhead = 24;
// Pixels that are few, and rows of results that are written side by side.
constexpr int64_t kFewPixels = 4;
constexpr int kStreams = 4;
// Channels that are few: rows of windows are gathered whole.
constexpr int64_t kFew = 16;
// Of groups with few results: pixels that are added up at once, so that pointers to all that lies under
// windows stay in the nearest cache; channels of a group that a tile has, and taps.
constexpr int64_t kShallow = 128;
constexpr int kNumbers = 8, kTaps = relax2xla::kSums / kNumbers;
// Multiplications that are worth a thread.
constexpr int64_t kWork = 500000;

/* Neighbours in a run, at most as many as a panel or a tile has. */
struct Piece {
  int64_t run, from, count;
};

/* A matrix with a row for each pixel of a result: what lies under its window, in runs of numbers that are
 * neighbours. */
struct Windows {
  const float* image;
  int64_t height, width, pitch, channels;
  int64_t window_height, window_width, steps, step, top, left, dilated_rows, dilated_columns;
  int64_t rows, columns;

  /* Whether a run is a row of the window, or a tap. */
  bool joined() const { return channels < kFew && window_width > 1 && dilated_columns == 1; }
  /* Whether pixels see one of their own each. */
  bool is_plain() const {
    return window_height == 1 && window_width == 1 && steps == 1 && step == 1 && top == 0 && left == 0 &&
           rows == height && columns == width;
  }
  int64_t runs() const { return window_height * (joined() ? 1 : window_width); }
  int64_t length() const { return channels * (joined() ? window_width : 1); }

  /* What lies under one tap, for all groups. */
  Windows of_tap(int64_t tap) const {
    Windows one = *this;
    one.top -= tap / window_width * dilated_rows;
    one.left -= tap % window_width * dilated_columns;
    one.window_height = one.window_width = 1;
    one.channels = pitch;
    return one;
  }

  /* The runs in pieces of about one size, `most` at the most. */
  std::vector<Piece> pieces(int64_t most) const {
    std::vector<Piece> made;
    const int64_t each = (length() + most - 1) / most;
    for (int64_t run = 0; run < runs(); ++run) {
      for (int64_t i = 0; i < each; ++i) {
        const int64_t from = most == kPanel ? i * kPanel : i * length() / each;
        const int64_t to = most == kPanel ? std::min(from + kPanel, length()) : (i + 1) * length() / each;
        made.push_back({run, from, to - from});
      }
    }
    return made;
  }

  /* Where a run begins for `count` pixels from `first` on. Runs that reach over the border are copied to
   * `aside`, which has room for all, and behind them lie zeros. */
  void find(int64_t run, int64_t first, int64_t count, const float** at, float* aside) const {
    float* const zeros = aside + (joined() ? count * length() : 0);
    std::fill_n(zeros, length(), 0.0f);
    const int64_t i = joined() ? run : run / window_width, j = joined() ? 0 : run % window_width;
    for (int64_t p = first, some; p < first + count; p += some, at += some) {
      const int64_t line = p / columns, begin = p % columns;
      some = std::min(columns - begin, first + count - p);
      const int64_t y = line % rows * steps - top + i * dilated_rows;
      if (y < 0 || y >= height) {
        std::fill_n(at, some, zeros);
        continue;
      }
      const float* const row = image + (line / rows * height + y) * width * pitch;
      int64_t x = begin * step - left + j * dilated_columns;
      if (!joined()) {
        relax2xla::find_pixels(row, width, pitch, x, step, some, zeros, at);
        continue;
      }
      for (int64_t n = 0; n < some; ++n, x += step) {
        const int64_t low = std::max<int64_t>(0, x), high = std::min(width, x + window_width);
        if (high - low == window_width && pitch == channels) {
          at[n] = row + x * pitch;
        } else if (high <= low) {
          at[n] = zeros;
        } else {
          std::fill_n(aside, length(), 0.0f);
          for (int64_t c = low; c < high; ++c)
            std::copy_n(row + c * pitch, channels, aside + (c - x) * channels);
          at[n] = aside;
          aside += length();
        }
      }
    }
  }

  /* Numbers that `find` has to have room for. */
  int64_t aside(int64_t count) const { return ((joined() ? count : 0) + 1) * length() + kPanel; }
};

/* How many pieces from this one on are gathered together: neighbours of one run. */
int64_t neighbours(const Piece* pieces, int64_t count) {
  int64_t some = 1;
  while (some < std::min(count, kBand) && pieces[some].run == pieces->run) ++some;
  return some;
}

/* Pieces of each of `rows`, each in a panel of its own, with zeros behind its numbers. Panels are `next`
 * numbers from each other. Rows may be pages apart: each is visited once. */
void gather(const float* const* at, int64_t rows, const Piece* pieces, int64_t some, float* to,
            int64_t next) {
  for (int64_t k = 0; k < rows; ++k, to += kPanel) {
    for (int64_t i = 0; i < some; ++i) {
      const float* const from = at[k] + pieces[i].from;
      float* const panel = to + i * next;
#pragma GCC unroll 2
      for (int v = 0; v < kPanel; v += kLanes) {
        const auto left = static_cast<int>(pieces[i].count) - v;
        store(panel + v, left >= kLanes ? load(from + v) : load_first(from + v, std::max(left, 0)));
      }
    }
  }
}

/* Sums over `depth` pixels of products of `Rows` numbers, from `from` on, with those of panels. */
template <int Rows, int Vectors>
void multiply(int64_t depth, const float* const* at, int64_t from, const float* panel, int64_t next,
              float* made) {
  Vector sum[Rows][Vectors] = {};
  for (int64_t k = 0; k < depth; ++k, panel += kPanel) {
    const float* row = at[k] + from;
    // One pointer to all rows: the compiler would keep one to each, more than there are registers.
    asm("" : "+r"(row));
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v += kPanel / kLanes)
      __builtin_prefetch(panel + kAhead * kPanel + v * kLanes / kPanel * next);
    Vector numbers[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      numbers[v] = load(panel + v * kLanes / kPanel * next + v * kLanes % kPanel);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const Vector factor = row[r] - Vector{};
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += factor * numbers[v];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) store(made + (r * Vectors + v) * kLanes, sum[r][v]);
  }
}

/* What computes a tile, of one panel and of `kBeside`. */
struct Tile {
  void (*one)(int64_t, const float* const*, int64_t, const float*, int64_t, float*);
  void (*beside)(int64_t, const float* const*, int64_t, const float*, int64_t, float*);
};

template <int Rows = kRows>
Tile tile_of(int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tile_of<Rows - 1>(rows);
  }
  return {multiply<Rows, kPanel / kLanes>, multiply<Rows, kVectors>};
}

/* A turned matrix times another: `out` has a row for each column of `left`. */
struct Product {
  const Windows &left, &right;
  int64_t pixels;
  float* out;
  int64_t stride;

  /* The product of some columns of each. */
  void compute(const Piece* rows, int64_t tiles, const Piece* panels, int64_t count) const {
    static thread_local std::vector<float> memory;
    static thread_local std::vector<const float*> at, near;
    const int64_t chunks = (pixels + kDepth - 1) / kDepth, most = (pixels + chunks - 1) / chunks;
    const int64_t next = most * kPanel;
    float* const packed =
        relax2xla::room(memory, (count + kBand) * next + std::max(left.aside(most), right.aside(most)));
    float *const copies = packed + count * next, *const aside = copies + kBand * next;
    at.resize(static_cast<size_t>(most));
    near.resize(static_cast<size_t>(kBand * most));
    for (int64_t k = 0; k < kBand * most; ++k) near[static_cast<size_t>(k)] = copies + k * kPanel;
    // Rows that push each other out of the nearest cache are copied: those a page apart, and where
    // many panels read them those of which the cache does not have room for many.
    const bool copied = relax2xla::collide(left.pitch) || (count >= 8 && left.pitch >= kWide);
    for (int64_t first = 0; first < pixels; first += most) {
      const int64_t depth = std::min(most, pixels - first);
      const auto find = [&](const Windows& windows, const Piece* piece, bool known) {
        if (known && piece[-1].run == piece->run) return;
        windows.find(piece->run, first, depth, at.data(), aside);
      };
      for (int64_t i = 0, some; i < count; i += some) {
        find(right, panels + i, i > 0);
        some = neighbours(panels + i, count - i);
        gather(at.data(), depth, panels + i, some, packed + i * next, next);
      }
      for (int64_t t = 0, some; t < tiles; t += some) {
        find(left, rows + t, t > 0);
        some = copied ? neighbours(rows + t, tiles - t) : 1;
        if (copied) gather(at.data(), depth, rows + t, some, copies, next);
        for (int64_t i = t; i < t + some; ++i) {
          const float* const* const numbers = copied ? near.data() + (i - t) * most : at.data();
          add(rows[i], depth, numbers, copied ? 0 : rows[i].from, panels, count, packed, next, first > 0);
        }
      }
    }
  }

  /* Tiles of some rows, whose numbers from `from` on are `at` pointers, and of all panels. */
  void add(const Piece& rows, int64_t depth, const float* const* at, int64_t from, const Piece* panels,
           int64_t count, const float* packed, int64_t next, bool more) const {
    const Tile tile = tile_of(rows.count);
    float made[kRows * kVectors * kLanes];
    for (int64_t i = 0, some; i < count; i += some) {
      some = count - i < kBeside ? 1 : kBeside;
      (some == kBeside ? tile.beside : tile.one)(depth, at, from, packed + i * next, next, made);
      for (int64_t p = 0; p < some; ++p)
        put(rows, panels[i + p], made + p * kPanel, some * kPanel, more);
    }
  }

  /* A tile of sums, whose rows are `apart` numbers from each other, or more of them. */
  void put(const Piece& rows, const Piece& panel, const float* made, int64_t apart, bool more) const {
    const int64_t column = panel.run * right.length() + panel.from;
    float* to = out + (rows.run * left.length() + rows.from) * stride + column;
    for (int64_t r = 0; r < rows.count; ++r, to += stride, made += apart) {
      if (panel.count == kPanel) {
        for (int v = 0; v < kPanel; v += kLanes)
          store(to + v, more ? load(to + v) + load(made + v) : load(made + v));
      } else {
        for (int64_t c = 0; c < panel.count; ++c) to[c] = more ? to[c] + made[c] : made[c];
      }
    }
  }
};

/* Sums over so few pixels that writing them takes longest: rows of some results one behind the other. */
void of_few_pixels(const Windows& left, const Windows& right, int64_t pixels, float* out) {
  const int64_t rows = left.channels, columns = right.channels;
  relax2xla::in_ranges((rows + kStreams - 1) / kStreams, kWork / (kStreams * columns * pixels),
                       [&](int64_t begin, int64_t end) {
    for (int64_t o = begin * kStreams; o < std::min(rows, end * kStreams); o += kStreams) {
      const int64_t some = std::min<int64_t>(kStreams, rows - o);
      float* const to = out + o * columns;
      for (int64_t c = 0; c < columns; c += kLanes) {
        const auto wide = static_cast<int>(std::min<int64_t>(kLanes, columns - c));
        Vector sum[kStreams] = {};
        for (int64_t k = 0; k < pixels; ++k) {
          const float* const from = right.image + k * right.pitch + c;
          const Vector numbers = wide == kLanes ? load(from) : load_first(from, wide);
          const float* const factors = left.image + k * left.pitch + o;
          for (int64_t r = 0; r < some; ++r) sum[r] += factors[r] * numbers;
        }
        for (int64_t r = 0; r < some; ++r) {
          float* const at = to + r * columns + c;
          wide == kLanes ? store(at, sum[r]) : store_first(at, sum[r], wide);
        }
      }
    }
  });
}

/* The products of all groups; those of each begin `next` numbers behind those before. */
void compute(const Windows& left, const Windows& right, int64_t pixels, int64_t groups, float* out,
             int64_t stride, int64_t next) {
  const std::vector<Piece> rows = left.pieces(kRows), panels = right.pieces(kPanel);
  const auto tiles = static_cast<int64_t>(rows.size()), all = static_cast<int64_t>(panels.size());
  const int64_t work = pixels * left.runs() * left.length() * right.runs() * right.length() * groups;
  const int64_t threads = std::clamp<int64_t>(work / kWork, 1, relax2xla::count_threads());
  // Groups and blocks of columns, and where these are fewer than threads, of rows.
  const int64_t least = (threads + groups - 1) / groups, even = (all + kBeside - 1) / kBeside;
  const int64_t blocks = std::min(even, std::max((all + kTogether - 1) / kTogether, least));
  const int64_t below = std::min(tiles, (least + blocks - 1) / blocks);
  relax2xla::each_part(groups * blocks * below, [&](int64_t part) {
    const int64_t group = part / (blocks * below), block = part / below % blocks, band = part % below;
    const int64_t begin = block * even / blocks * kBeside;
    const int64_t end = std::min(all, (block + 1) * even / blocks * kBeside);
    const int64_t top = band * tiles / below, bottom = (band + 1) * tiles / below;
    Windows a = left, b = right;
    a.image += group * a.channels;
    b.image += group * b.channels;
    Product{a, b, pixels, out + group * next, stride}.compute(
        rows.data() + top, bottom - top, panels.data() + begin, end - begin);
  });
}

/* Of windows of one tap, results first. */
void of_plain(const Windows& gradients, const Windows& windows, int64_t pixels, int64_t groups, float* out) {
  if (pixels <= kFewPixels && groups == 1 && windows.is_plain()) {
    of_few_pixels(gradients, windows, pixels, out);
  } else {
    compute(gradients, windows, pixels, groups, out, windows.channels, gradients.channels * windows.channels);
  }
}

/* Sums over `depth` pixels for groups whose results fill a vector (products/interleaved.h): `Count` panels
 * of each group, `beside` numbers from those of the one before, under each of `Taps`, `below` numbers from
 * those under the one before. Pixels under a tap are `next` pointers behind those under the one before; of
 * them a group has `own` numbers, the first group from `from` on. */
template <int Beside, int Count, int Taps>
void multiply_interleaved(int64_t depth, const float* const* at, int64_t next, int64_t from, int64_t own,
                          const float* gradient, int64_t pitch, float* sums, int64_t beside,
                          int64_t below) {
  constexpr int kParts = kPanel / kLanes, kGroups = Beside / kParts;
  Vector sum[Taps][kGroups][Count][kParts];
  const auto each = [&](auto change) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 8
        for (int i = 0; i < Count * kParts; ++i)
          change(sum[t][g][i / kParts][i % kParts], sums + t * below + g * beside + i * kLanes);
      }
    }
  };
  each([](Vector& s, const float* before) { s = load(before); });
  for (int64_t k = 0; k < depth; ++k, ++at, gradient += pitch) {
    Vector gradients[Beside];
    relax2xla::spread<Beside>(load(gradient), gradients, std::make_integer_sequence<int, kLanes>{});
#pragma GCC unroll 4
    for (int t = 0; t < Taps; ++t) {
      const float* const row = at[t * next] + from;
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
        for (int c = 0; c < Count; ++c) {
          const Vector numbers = relax2xla::repeated<Beside>(row + g * own + c * Beside);
#pragma GCC unroll 2
          for (int v = 0; v < kParts; ++v) sum[t][g][c][v] += numbers * gradients[g * kParts + v];
        }
      }
    }
  }
  each([](Vector& s, float* to) { store(to, s); });
}

/* What computes `count` panels, or as many as a tile has, under `kTaps` or one. */
template <int Beside, int Count = kNumbers / Beside>
auto interleaved_tile_of(int64_t count, bool several) {
  if constexpr (Count > 1) {
    if (count < Count) return interleaved_tile_of<Beside, Count - 1>(count, several);
  }
  return several ? multiply_interleaved<Beside, Count, kTaps> : multiply_interleaved<Beside, Count, 1>;
}

/* The gradient of the weight of groups with few results: panels [taps, groups, channels / interleaved,
 * kPanel]. */
struct InterleavedProduct {
  const Windows &windows, &gradients;
  int64_t pixels, groups, interleaved;
  float* sums;

  int64_t own() const { return windows.pitch / groups; }
  int64_t taps() const { return windows.window_height * windows.window_width; }
  /* Groups whose results fill a vector are one unit. */
  int64_t units() const { return groups / relax2xla::groups_beside(interleaved); }

  void compute() const {
    const int64_t blocks = (taps() + kTaps - 1) / kTaps;
    const int64_t work = pixels * taps() * own() * gradients.pitch;
    const int64_t threads = std::clamp<int64_t>(work / kWork, 1, relax2xla::count_threads());
    const int64_t across = std::min(units(), threads);
    const int64_t down = std::min(blocks, (threads + across - 1) / across);
    std::fill_n(sums, taps() * own() * kPanel / interleaved * groups, 0.0f);
    relax2xla::each_part(across * down, [&](int64_t part) {
      const int64_t i = part % across, j = part / across;
      some({i * units() / across, (i + 1) * units() / across},
           {j * blocks / down * kTaps, std::min(taps(), (j + 1) * blocks / down * kTaps)});
    });
  }

  /* The sums of some units, under some taps. */
  void some(const relax2xla::Range& band, const relax2xla::Range& under) const {
    static thread_local std::vector<float> memory;
    static thread_local std::vector<const float*> at;
    const int64_t count = own() / interleaved, beside = count * kPanel, below = groups * beside;
    at.resize(static_cast<size_t>((under.end - under.begin) * kShallow));
    float* const aside = relax2xla::room(memory, windows.of_tap(0).aside(kShallow));
    for (int64_t first = 0; first < pixels; first += kShallow) {
      const int64_t depth = std::min(kShallow, pixels - first);
      const auto pointers = [&](int64_t tap) { return at.data() + (tap - under.begin) * kShallow; };
      for (int64_t tap = under.begin; tap < under.end; ++tap)
        windows.of_tap(tap).find(0, first, depth, pointers(tap), aside);
      for (int64_t unit = band.begin; unit < band.end; ++unit) {
        const int64_t group = unit * relax2xla::groups_beside(interleaved);
        const float* const gradient = gradients.image + first * gradients.pitch + unit * kLanes;
        for (int64_t tap = under.begin, many; tap < under.end; tap += many) {
          many = under.end - tap < kTaps ? 1 : kTaps;
          for (int64_t c = 0; c < count; c += kNumbers / interleaved) {
            const auto tile = interleaved == 2 ? interleaved_tile_of<2>(count - c, many > 1)
                                               : interleaved_tile_of<4>(count - c, many > 1);
            float* const to = sums + tap * below + group * beside + c * kPanel;
            tile(depth, pointers(tap), kShallow, group * own() + c * interleaved, own(), gradient,
                 gradients.pitch, to, beside, below);
          }
        }
      }
    }
  }

  /* The panels as a weight: how far its numbers are from each other along results, channels and taps. */
  void put(float* out, const int64_t* place) const {
    const int64_t results = kPanel / interleaved;
    const float* from = sums;
    for (int64_t t = 0; t < taps(); ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t c = 0; c < own(); c += interleaved, from += kPanel) {
          float* const to = out + g * results * place[0] + c * place[1] + t * place[2];
          for (int64_t i = 0; i < kPanel; ++i)
            to[i / interleaved * place[0] + i % interleaved * place[1]] = from[i];
        }
      }
    }
  }
};

/* How many groups are computed together: channels of a few fill a panel, of whose products with results of
 * other groups nothing is kept. */
int64_t together(int64_t groups, int64_t channels) {
  int64_t most = 1;
  for (int64_t some = 2; some * channels <= kPanel && some <= groups; ++some) {
    if (groups % some == 0) most = some;
  }
  return most;
}

/* Rows of numbers, each what a pixel sees. */
Windows rows_of(const DLTensor* matrix) {
  const int64_t count = matrix->shape[0], channels = matrix->shape[1];
  return {static_cast<const float*>(matrix->data), 1, count, channels, channels, 1, 1, 1, 1, 0, 0, 1, 1, 1,
          count};
}

/* The gradient of a matrix [results, channels]. */
void of_matrix(const DLTensor* rows, const DLTensor* gradient, const DLTensor* result) {
  ICHECK(rows->ndim == 2 && gradient->ndim == 2 && result->ndim == 2) << "these are matrices";
  const int64_t pixels = rows->shape[0], channels = rows->shape[1];
  auto* const out = static_cast<float*>(result->data);
  relax2xla::ask_for_large_pages(
      out, channels * gradient->shape[1] * static_cast<int64_t>(sizeof(float)));
  of_plain(rows_of(gradient), rows_of(rows), pixels, 1, out);
}

/* The gradient of a weight that lies [window_height, window_width, channels, results], or if it is `first`
 * [results, channels, window_height, window_width]. */
void of_weight(const DLTensor* image, const DLTensor* gradient, int64_t steps, int64_t step, int64_t top,
               int64_t left, int64_t dilated_rows, int64_t dilated_columns, int64_t groups,
               int64_t first, const DLTensor* result) {
  const int64_t *from = image->shape, *of = gradient->shape, *to = result->shape;
  const int64_t height = to[first ? 2 : 0], width = to[first ? 3 : 1], taps = height * width;
  const int64_t own = from[3] / groups, beside = together(groups, own), units = groups / beside;
  const int64_t channels = own * beside, all = of[3], pixels = of[0] * of[1] * of[2];
  const Windows windows{static_cast<const float*>(image->data),
                        from[1], from[2], from[3], channels, height, width,
                        steps, step, top, left, dilated_rows, dilated_columns, of[1], of[2]};
  const Windows gradients{static_cast<const float*>(gradient->data),
                          of[1], of[2], all, all / units, 1, 1, 1, 1, 0, 0, 1, 1, of[1], of[2]};
  auto* const out = static_cast<float*>(result->data);
  relax2xla::ask_for_large_pages(out, taps * own * all * static_cast<int64_t>(sizeof(float)));
  if (first && taps == 1 && beside == 1) {
    of_plain(gradients, windows, pixels, units, out);
    return;
  }
  const int64_t place[] = {first ? own * taps : 1, first ? taps : all, first ? 1 : own * all};
  static thread_local std::vector<float> memory;
  const int64_t interleaved = relax2xla::interleaving_of(own, all / groups, groups);
  if (interleaved > 1) {
    float* const sums = relax2xla::room(memory, taps * own * all);
    const InterleavedProduct product{windows, gradients, pixels, groups, interleaved, sums};
    product.compute();
    product.put(out, place);
    return;
  }
  const bool direct = !first && beside == 1;
  float* const sums = direct ? out : relax2xla::room(memory, taps * channels * all);
  compute(windows, gradients, pixels, units, sums, all, all / units);
  if (direct) return;
  relax2xla::in_ranges((all + kPanel - 1) / kPanel, kWork / (taps * own * kPanel),
                       [&](int64_t begin, int64_t end) {
    for (int64_t o = begin * kPanel; o < std::min(all, end * kPanel); o += kPanel) {
      // A line of sums, of which each result has those of its own group.
      const int64_t some = std::min<int64_t>(kPanel, all - o);
      int64_t from[kPanel], to[kPanel];
      for (int64_t i = 0; i < some; ++i) {
        from[i] = (o + i) / (all / groups) % beside * own * all + o + i;
        to[i] = (o + i) * place[0];
      }
      for (int64_t c = 0; c < own; ++c) {
        for (int64_t t = 0; t < taps; ++t) {
          const float* const line = sums + (t * channels + c) * all;
          float* const at = out + c * place[1] + t * place[2];
          for (int64_t i = 0; i < some; ++i) at[to[i]] = line[from[i]];
        }
      }
    }
  });
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_gradients_of_weight, of_weight);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_gradients_of_matrix, of_matrix);

/* Attention: softmax(scale * query key^T + biases) value, head by head; and the rotation of queries and
 * keys by their places before it.
 *
 * Numbers are float32. Rows of heads are read where they lie; the scores of some queries stay in a near
 * cache until they are used, and are never in memory as a whole. Products are those of tiles
 * (products/tile.h): the keys of a head, and its values, are laid out in panels once for all queries
 * that a thread has of it.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using relax2xla::in_panels;
using relax2xla::kLanes;
using relax2xla::kPanel;
using relax2xla::lanes;
using relax2xla::load;
using relax2xla::load_first;
using relax2xla::room;
using relax2xla::store;
using relax2xla::Strip;
using relax2xla::Tile;
using relax2xla::tile_of;
using relax2xla::Vector;

// Scores that a near cache holds beside what they are made of; queries of a block, in tiles.
constexpr int64_t kNear = 32 * 1024, kMostQueries = 8 * relax2xla::kTileRows;
// Queries of a block whose queries do not see all keys: what a block computes, all of it sees.
constexpr int64_t kCausalQueries = 4 * relax2xla::kTileRows;
// Multiplications that are worth a thread.
constexpr int64_t kWork = 500000;
// Numbers that are turned, of which as many are.
constexpr int64_t kTurned = 50000;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

/* Rows of the heads of a tensor: numbers from a batch, a row and a head to the next. */
struct Rows {
  const float* numbers;
  int64_t batch, row, head;

  /* `pitch`: numbers of the rows of all heads, [batch, rows, pitch], which begin `offset` behind the
   * first; 0: heads come first, [batch, heads, rows, width]. */
  Rows(const DLTensor* tensor, int64_t rows, int64_t heads, int64_t width, int64_t pitch,
       int64_t offset)
      : numbers(static_cast<const float*>(tensor->data) + offset),
        batch(rows * (pitch == 0 ? heads * width : pitch)),
        row(pitch == 0 ? width : pitch),
        head(pitch == 0 ? rows * width : width) {}

  const float* at(int64_t b, int64_t h, int64_t r) const {
    return numbers + b * batch + h * head + r * row;
  }
};

/* What is added to scores: numbers from a batch, a head, a query and a key to the next, 0 where they
 * share them. */
struct Bias {
  const float* numbers;
  int64_t batch, head, query, key;

  const float* at(int64_t b, int64_t h, int64_t q) const {
    return numbers + b * batch + h * head + q * query;
  }
};

/* Numbers of `count` rows, in panels of rows: [panels, width, kPanel], zeros behind the last row. */
void pack_rows(const float* rows, int64_t apart, int64_t count, int64_t width, float* to) {
  for (int64_t r = 0; r < count; r += kPanel, to += width * kPanel) {
    const int64_t some = std::min<int64_t>(kPanel, count - r);
    const float* const from = rows + r * apart;
    int64_t i = 0;
    if (some == kPanel) {
      for (; i + kLanes <= width; i += kLanes) {
        for (int v = 0; v < kPanel; v += kLanes) {
          Vector block[kLanes];
          relax2xla::load_turned(from + v * apart + i, apart, block);
#pragma GCC unroll 16
          for (int k = 0; k < kLanes; ++k) store(to + (i + k) * kPanel + v, block[k]);
        }
      }
    }
    for (; i < width; ++i) {
      for (int64_t k = 0; k < some; ++k) to[i * kPanel + k] = from[k * apart + i];
      std::fill(to + i * kPanel + some, to + (i + 1) * kPanel, 0.0f);
    }
  }
}

/* Numbers of `count` rows, in panels of their columns: [panels, count, kPanel], zeros behind the last. */
void pack_columns(const float* rows, int64_t apart, int64_t count, int64_t width, float* to) {
  for (int64_t c = 0; c < width; c += kPanel, to += count * kPanel) {
    const int64_t some = std::min<int64_t>(kPanel, width - c);
    for (int64_t r = 0; r < count; ++r) {
      float* const made = to + r * kPanel;
      std::copy_n(rows + r * apart + c, some, made);
      std::fill(made + some, made + kPanel, 0.0f);
    }
  }
}

/* Products of `count` rows, `stride` numbers apart, of `depth` numbers each, and panels `next` numbers
 * apart that make `wide` columns; to rows `apart` numbers from each other, which hold whole panels. */
void multiply(const float* rows, int64_t stride, int64_t count, int64_t depth, const float* panels,
              int64_t next, int64_t wide, const float* zeros, float* to, int64_t apart) {
  for (int64_t column = 0, step; column < wide; column += step) {
    const int64_t vectors = (in_panels(wide) - column) / kLanes;
    Tile tile = tile_of(count, vectors, stride);
    step = tile.vectors * kLanes;
    const float* const panel = panels + column / kPanel * next;
    relax2xla::Ahead coming = relax2xla::nothing_ahead(depth);
    for (int64_t r = 0, some; r < count; r += some * tile.rows) {
      if (count - r < tile.rows) tile = tile_of(count - r, tile.vectors, stride);
      some = (count - r) / tile.rows;
      const float* const first = rows + r * stride;
      tile.compute(some,
                   {&first, 0, stride, 1, 0, depth, panel, next, zeros, nullptr,
                    to + r * apart + column, apart},
                   &coming);
    }
  }
}

/* e to the power of `v`, and 0 where that is less than 2e-38; of what is no number, that. */
inline Vector power_of(Vector v) {
  const Vector made = relax2xla::exponential(v);
  return v < -87.0f ? Vector{} : made;
}

struct Attention {
  Rows query, key, value;
  Bias bias, mask;
  float* result;
  int64_t batch, heads, queries, keys, depth, wide;
  // How far behind itself a query sees keys, from `causal` on.
  bool causal;
  int64_t behind;
  float scale;
  // What is added: none, the bias, or the mask as well.
  int64_t added;

  /* Keys that the query sees. */
  int64_t seen(int64_t q) const { return causal ? std::min(keys, q + behind + 1) : keys; }

  /* Of the scores of a query the powers, whose sum it gives. Behind what it sees, up to `all`, are
   * zeros. */
  float soften(int64_t b, int64_t h, int64_t q, float* scores, int64_t all) const {
    switch (added) {
      case 0: return soften<0>(nullptr, nullptr, q, scores, all);
      case 1: return soften<1>(bias.at(b, h, q), nullptr, q, scores, all);
      default: return soften<2>(bias.at(b, h, q), mask.at(b, h, q), q, scores, all);
    }
  }

  template <int Added>
  float soften(const float* first, const float* second, int64_t q, float* scores, int64_t all) const {
    const int64_t count = seen(q), whole = count / kLanes * kLanes;
    const auto largest = [](Vector x, Vector y) { return x > y ? x : y; };
    Vector top = Vector{} + kLowest;
    for (int64_t k = 0; k < whole; k += kLanes) {
      Vector v = load(scores + k);
      if constexpr (Added > 0) {
        v += bias.key == 0 ? Vector{} + *first : load(first + k);
        if constexpr (Added > 1) v += mask.key == 0 ? Vector{} + *second : load(second + k);
        store(scores + k, v);
      }
      top = largest(v, top);
    }
    int64_t end = whole;
    if (whole < count) {
      // The last vector ends with what changes neither the largest nor the sum.
      const auto rest = static_cast<int>(count - whole);
      Vector v = load(scores + whole);
      if constexpr (Added > 0)
        v += bias.key == 0 ? Vector{} + *first : load_first(first + whole, rest);
      if constexpr (Added > 1)
        v += mask.key == 0 ? Vector{} + *second : load_first(second + whole, rest);
      v = lanes() < rest ? v : Vector{} + kLowest;
      store(scores + whole, v);
      top = largest(v, top);
      end += kLanes;
    }
    top = relax2xla::folded(top, largest);
    Vector sums[2] = {};
    for (int64_t k = 0; k < end; k += kLanes) {
      const Vector v = power_of(load(scores + k) - top);
      sums[k / kLanes % 2] += v;
      store(scores + k, v);
    }
    for (int64_t k = end; k < all; k += kLanes) store(scores + k, Vector{});
    return relax2xla::folded(sums[0] + sums[1], [](Vector x, Vector y) { return x + y; })[0];
  }

  /* Queries in a block: so many that their scores stay near. */
  int64_t block() const {
    const int64_t most = causal ? kCausalQueries : kMostQueries;
    const int64_t fit = kNear / in_panels(keys) / relax2xla::kTileRows * relax2xla::kTileRows;
    return relax2xla::block_of(queries, std::clamp(fit, relax2xla::kTileRows, most));
  }

  void compute() const {
    const int64_t each = block(), blocks = (queries + each - 1) / each;
    const int64_t work = each * keys * (depth + wide);
    relax2xla::in_ranges(batch * heads * blocks, kWork / work,
                         [&](int64_t begin, int64_t end) { run(begin, end, each, blocks); });
  }

  /* Blocks [begin, end) of `each` queries, `blocks` to a head. */
  void run(int64_t begin, int64_t end, int64_t each, int64_t blocks) const {
    static thread_local std::vector<float> memory;
    const int64_t stride = relax2xla::stride_of(depth), apart = relax2xla::stride_of(in_panels(keys));
    const int64_t made_apart = in_panels(wide);
    const int64_t of_keys = in_panels(keys) * depth, of_values = made_apart * keys;
    const int64_t of_scores = each * apart, of_queries = each * stride, of_made = each * made_apart;
    constexpr int64_t kZeros = (relax2xla::kVectors + 1) * kLanes;
    float* const panels =
        room(memory, of_keys + of_values + of_scores + of_queries + of_made + kZeros + each);
    float* const values = panels + of_keys;
    float* const scores = values + of_values;
    float* const scaled = scores + of_scores;
    float* const made = scaled + of_queries;
    float* const zeros = made + of_made;
    float* const sums = zeros + kZeros;
    std::fill_n(zeros, kZeros, 0.0f);
    int64_t packed = -1;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t head = unit / blocks, b = head / heads, h = head % heads;
      const int64_t first = unit % blocks * each, count = std::min(each, queries - first);
      if (packed != head) {
        pack_rows(key.at(b, h, 0), key.row, keys, depth, panels);
        pack_columns(value.at(b, h, 0), value.row, keys, wide, values);
        packed = head;
      }
      for (int64_t q = 0; q < count; ++q) {
        const float* const from = query.at(b, h, first + q);
        for (int64_t d = 0; d < depth; ++d) scaled[q * stride + d] = from[d] * scale;
      }
      const int64_t all = seen(first + count - 1);
      multiply(scaled, stride, count, depth, panels, depth * kPanel, all, zeros, scores, apart);
      for (int64_t q = 0; q < count; ++q)
        sums[q] = soften(b, h, first + q, scores + q * apart, all);
      multiply(scores, apart, count, all, values, keys * kPanel, wide, zeros, made, made_apart);
      for (int64_t q = 0; q < count; ++q) {
        float* const to = result + ((b * queries + first + q) * heads + h) * wide;
        const float factor = 1.0f / sums[q];
        for (int64_t d = 0; d < wide; ++d) to[d] = made[q * made_apart + d] * factor;
      }
    }
  }
};

void attend(const DLTensor* query, const DLTensor* key, const DLTensor* value, const DLTensor* bias,
            const DLTensor* mask, int64_t keys, int64_t depth, int64_t query_pitch,
            int64_t query_offset, int64_t key_pitch, int64_t key_offset, int64_t value_pitch,
            int64_t value_offset, int64_t added, int64_t bias_batch, int64_t bias_head,
            int64_t bias_query, int64_t bias_key, int64_t mask_batch, int64_t mask_head,
            int64_t mask_query, int64_t mask_key, int64_t causal, int64_t behind, double scale,
            const DLTensor* result) {
  const int64_t queries = result->shape[1], heads = result->shape[2], wide = result->shape[3];
  const auto numbers = [](const DLTensor* t) { return static_cast<const float*>(t->data); };
  const Attention made{
      Rows(query, queries, heads, depth, query_pitch, query_offset),
      Rows(key, keys, heads, depth, key_pitch, key_offset),
      Rows(value, keys, heads, wide, value_pitch, value_offset),
      Bias{numbers(bias), bias_batch, bias_head, bias_query, bias_key},
      Bias{numbers(mask), mask_batch, mask_head, mask_query, mask_key},
      static_cast<float*>(result->data),
      result->shape[0],
      heads,
      queries,
      keys,
      depth,
      wide,
      causal != 0,
      behind,
      static_cast<float>(scale),
      added};
  made.compute();
}

/* Rows of heads, halves of each turned against each other by angles: x cos + (-second, first) sin.
 * Cosines and sines have rows for each of those, `of_batch` numbers from a batch to the next. */
void rotate(const DLTensor* x, const DLTensor* cosines, const DLTensor* sines, int64_t pitch,
            int64_t offset, int64_t cosines_of_batch, int64_t sines_of_batch, const DLTensor* result) {
  const int64_t batch = result->shape[0], rows = result->shape[1];
  const int64_t heads = result->shape[2], width = result->shape[3], half = width / 2;
  const Rows from(x, rows, heads, width, pitch, offset);
  const auto* const cosine = static_cast<const float*>(cosines->data);
  const auto* const sine = static_cast<const float*>(sines->data);
  auto* const made = static_cast<float*>(result->data);
  relax2xla::in_ranges(batch * rows, kTurned / (heads * width), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / rows, r = at % rows;
      const float* __restrict c = cosine + b * cosines_of_batch + r * width;
      const float* __restrict s = sine + b * sines_of_batch + r * width;
      for (int64_t h = 0; h < heads; ++h) {
        const float* __restrict in = from.at(b, h, r);
        float* __restrict to = made + (at * heads + h) * width;
        for (int64_t i = 0; i < half; ++i) {
          to[i] = in[i] * c[i] - in[half + i] * s[i];
          to[half + i] = in[half + i] * c[half + i] + in[i] * s[half + i];
        }
      }
    }
  });
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_attention_attend, attend);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_attention_rotate, rotate);

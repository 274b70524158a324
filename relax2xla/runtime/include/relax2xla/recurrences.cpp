/* Recurrent cells, stepped over a sequence.
 *
 * Numbers are float32. `rows` [steps, batch, gates * size] are the input's part of the sums of all
 * gates, in some order; the state's part is multiplied here. The weight [panels, size, gates, kPanel]
 * has beside each other what the gates of a panel of the state read, with zeros behind the last number
 * of the state, and gates in the order i, f, g, o of an LSTM; r, z, n of a GRU. The result holds the
 * states of all steps, and of an LSTM the last cells behind them.
 *
 * A step's time is that of reading the weight: threads have a part of it each, which stays in their
 * caches from step to step, and go over it by turns forwards and backwards.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/numbers.h>
#include <relax2xla/products/few_rows.h>
#include <relax2xla/steps.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using relax2xla::kLanes;
using relax2xla::kPanel;
using relax2xla::load;
using relax2xla::numbers;
using relax2xla::store;
using relax2xla::Vector;

// As `CELLS` in kernels/recurrences.py.
enum Cell : int64_t { kLstm = 0, kGru = 1, kTanh = 2, kRelu = 3 };

constexpr int gates_of(int64_t cell) { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }

// Vectors of a panel; rows of the batch at once.
constexpr int kWide = kPanel / kLanes, kMostRows = 4;
// Numbers of a weight that are worth a thread.
constexpr int64_t kWorth = 32 * 1024;

struct Recurrence {
  const float *rows, *weight, *bias, *state, *cells;
  float* result;
  int64_t steps, batch, size;
  // Where the gates are among the sums of the input, and in the bias.
  int64_t order[4];
  bool backwards;

  int64_t panels() const { return (size + kPanel - 1) / kPanel; }
  int64_t padded() const { return panels() * kPanel; }

  /* The states of all rows before a step and behind it, and the cells. */
  struct Memory {
    const float* before;
    float *after, *cells;
  };

  /* The numbers of each gate from `column` on, [gates, kPanel], of those of one row of sums. */
  template <int Gates>
  void gather(const float* sums, int64_t column, float* to) const {
    const int64_t count = std::min<int64_t>(kPanel, size - column);
    for (int g = 0; g < Gates; ++g, to += kPanel) {
      const float* const from = sums + order[g] * size + column;
      std::fill(std::copy_n(from, count, to), to + kPanel, 0.0f);
    }
  }

  /* A panel of `Rows` states from `row` on; `next`: the panel that is read then. */
  template <int64_t Cell, int Rows>
  void panel(int64_t step, int64_t row, int64_t at, int64_t next, const Memory& memory) const {
    constexpr int kGates = gates_of(Cell), kVectors = kGates * kWide;
    constexpr int64_t kDeep = kGates * kPanel;
    const int64_t apart = padded(), numbers = size * kDeep;
    Vector sums[Rows][kVectors];
    relax2xla::sums_of_rows<Rows, kVectors>(memory.before + row * apart, apart, size,
                                            weight + at * numbers, weight + next * numbers, sums);
    float constant[kDeep], given[kDeep];
    const int64_t column = at * kPanel;
    gather<kGates>(bias, column, constant);
    for (int r = 0; r < Rows; ++r) {
      const int64_t index = step * batch + row + r, first = (row + r) * apart + column;
      gather<kGates>(rows + index * kGates * size, column, given);
      for (int w = 0; w < kWide; ++w) {
        Vector sum[kGates], input[kGates];
        for (int g = 0; g < kGates; ++g) {
          sum[g] = sums[r][g * kWide + w] + load(constant + g * kPanel + w * kLanes);
          input[g] = load(given + g * kPanel + w * kLanes);
        }
        const int64_t place = first + w * kLanes;
        store(memory.after + place, next_state<Cell>(sum, input, place, memory));
      }
      std::copy_n(memory.after + first, std::min<int64_t>(kPanel, size - column),
                  result + index * size + column);
    }
  }

  /* The state behind a step, of the sums of its gates; the cells of an LSTM change. */
  template <int64_t Cell>
  static Vector next_state(const Vector* sum, const Vector* input, int64_t place,
                           const Memory& memory) {
    using relax2xla::sigmoid;
    using relax2xla::tangent;
    if constexpr (Cell == kLstm) {
      float* const at = memory.cells + place;
      const Vector kept = sigmoid(sum[1] + input[1]) * load(at);
      const Vector cell = kept + sigmoid(sum[0] + input[0]) * tangent(sum[2] + input[2]);
      store(at, cell);
      return sigmoid(sum[3] + input[3]) * tangent(cell);
    } else if constexpr (Cell == kGru) {
      const Vector reset = sigmoid(sum[0] + input[0]), update = sigmoid(sum[1] + input[1]);
      const Vector made = tangent(input[2] + reset * sum[2]);
      return (1.0f - update) * made + update * load(memory.before + place);
    } else if constexpr (Cell == kTanh) {
      return tangent(sum[0] + input[0]);
    } else {
      return relax2xla::larger(0.0f, sum[0] + input[0]);
    }
  }

  /* A panel of all rows of the batch. */
  template <int64_t Cell>
  void panel_of_all(int64_t step, int64_t at, int64_t next, const Memory& memory) const {
    constexpr int kFit = relax2xla::kSums / (gates_of(Cell) * kWide);
    constexpr int kRows = kFit < 1 ? 1 : kFit > kMostRows ? kMostRows : kFit;
    panel_of<Cell, kRows>(step, 0, at, next, memory);
  }

  template <int64_t Cell, int Rows>
  void panel_of(int64_t step, int64_t row, int64_t at, int64_t next, const Memory& memory) const {
    for (; row + Rows <= batch; row += Rows) panel<Cell, Rows>(step, row, at, next, memory);
    if constexpr (Rows > 1) panel_of<Cell, Rows - 1>(step, row, at, next, memory);
  }

  /* Rows of the batch, as they are padded. */
  void pad(const float* from, float* to) const {
    for (int64_t r = 0; r < batch; ++r, from += size, to += padded())
      std::fill(std::copy_n(from, size, to), to + padded(), 0.0f);
  }

  template <int64_t Cell>
  void run() const {
    static thread_local std::vector<float> numbers;
    const int64_t all = batch * padded();
    float* const first = relax2xla::room(numbers, 3 * all);
    float *const states[2] = {first, first + all}, *const own = first + 2 * all;
    pad(state, states[0]);
    if constexpr (Cell == kLstm) pad(cells, own);
    const int64_t worth = all / batch * size * gates_of(Cell) / kWorth;
    const int64_t most = std::clamp<int64_t>(worth, 1, panels());
    relax2xla::in_steps(steps, most, [&](int64_t n, int64_t member, int64_t members) {
      const Memory memory{states[n % 2], states[(n + 1) % 2], own};
      const int64_t begin = member * panels() / members, end = (member + 1) * panels() / members;
      const bool back = n % 2 == 1;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = back ? begin + end - 1 - i : i;
        const int64_t next = std::clamp(back ? at - 1 : at + 1, begin, end - 1);
        panel_of_all<Cell>(backwards ? steps - 1 - n : n, at, next, memory);
      }
    });
    if constexpr (Cell == kLstm) {
      for (int64_t r = 0; r < batch; ++r)
        std::copy_n(own + r * padded(), size, result + (steps * batch + r) * size);
    }
  }

  void compute(int64_t cell) const {
    if (cell == kLstm) run<kLstm>();
    if (cell == kGru) run<kGru>();
    if (cell == kTanh) run<kTanh>();
    if (cell == kRelu) run<kRelu>();
  }
};

void recur(const DLTensor* rows, const DLTensor* weight, const DLTensor* bias,
           const DLTensor* state, const DLTensor* cells, int64_t cell, int64_t backwards,
           int64_t first, int64_t second, int64_t third, int64_t fourth, const DLTensor* result) {
  ICHECK(cell >= kLstm && cell <= kRelu) << "a cell is one of those that there are";
  Recurrence{numbers(rows),  numbers(weight), numbers(bias), numbers(state), numbers(cells),
             static_cast<float*>(result->data), rows->shape[0], rows->shape[1], state->shape[1],
             {first, second, third, fourth},    backwards != 0}
      .compute(cell);
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_recurrences_recur, recur);

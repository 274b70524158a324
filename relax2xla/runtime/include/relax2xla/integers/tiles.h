/* Products of blocks of rows by a panel in tiles (AMX): 16 rows by 16 columns, 64 deep, at once.
 *
 * Sums are those of product.h, and panels lie as there. Rows are copied, tile after tile, since
 * the rows of a tile are read at one distance, which those of windows do not have.
 */
#ifndef RELAX2XLA_INTEGERS_TILES_H_
#define RELAX2XLA_INTEGERS_TILES_H_

#include <relax2xla/integers/product.h>

#ifndef RELAX2XLA_TILES
#if RELAX2XLA_BYTES && RELAX2XLA_LANES == 16 && defined(__AMX_INT8__) && defined(__linux__)
#define RELAX2XLA_TILES 1
#else
#define RELAX2XLA_TILES 0
#endif
#endif

#if RELAX2XLA_TILES
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace relax2xla_integers {

// Rows of a tile, its bytes in a row, and all of them.
constexpr int64_t kTileRows = 16, kTileDepth = 64, kTile = kTileRows * kTileDepth;

/* Whether the system lets this process have tiles, which it is asked for once. */
inline bool may_have_tiles() {
  constexpr int kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA
  static const bool may = syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
  return may;
}

/* Eight whole tiles, as `ldtilecfg` reads their shapes. */
struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline constexpr TileShapes kTileShapes{};

/* The tiles of this thread while it lives. */
class Tiles {
 public:
  Tiles() { _tile_loadconfig(&kTileShapes); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/* Some of the numbers of a row: from where in it, and to where in the first row of tiles. */
struct Piece {
  int64_t from, to;
  __mmask64 mask;
};

/* The pieces of each row, cut where a tile ends. */
inline std::vector<Piece> pieces_of(const Rows& rows) {
  std::vector<Piece> made;
  int64_t depth = 0;
  for (int64_t at : rows.parts) {
    for (int64_t k = 0; k < rows.length;) {
      const int64_t place = (depth + k) % kTileDepth;
      const int64_t some = std::min(rows.length - k, kTileDepth - place);
      made.push_back({at + k, (depth + k) / kTileDepth * kTile + place,
                      ~__mmask64(0) >> (kTileDepth - some)});
      k += some;
    }
    depth += rows.steps * kDepth;
  }
  return made;
}

/* Rows [begin, end) as tiles: all of 16 rows, then those of the next. What no row fills stays as it
 * was: it meets zeros, or makes sums that nobody reads.
 */
inline void place(const Rows& rows, const std::vector<Piece>& pieces, int64_t begin, int64_t end,
                  int64_t of_rows, Left* to) {
  for (; begin < end; begin += kTileRows, to += of_rows) {
    const Left* const* starts = rows.starts.data() + begin;
    const int64_t some = std::min(kTileRows, end - begin);
    for (const Piece piece : pieces) {
      Left* own = to + piece.to;
      for (int64_t i = 0; i < some; ++i, own += kTileDepth)
        _mm512_mask_storeu_epi8(own, piece.mask,
                                _mm512_maskz_loadu_epi8(piece.mask, starts[i] + piece.from));
    }
  }
}

/* Sums of 16 rows, or of 32 where `kTwo`, by 32 columns of a panel.
 *
 * left: the tiles of the first 16 rows, those of the next `of_rows` behind it; right: the columns
 * of the panel; last: the same of its last tiles, filled up with zeros, where there are such.
 */
template <bool kTwo>
inline void multiply_tiles(const Left* left, int64_t of_rows, int64_t whole, const Right* right,
                           const Right* last, int32_t* sums) {
  constexpr int64_t kStride = kColumns * kDepth;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  auto step = [&](int64_t k, const Right* columns) __attribute__((always_inline)) {
    _tile_loadd(4, left + k * kTile, kTileDepth);
    _tile_loadd(6, columns, kStride);
    _tile_loadd(7, columns + kTileRows * kDepth, kStride);
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    if constexpr (kTwo) {
      _tile_loadd(5, left + of_rows + k * kTile, kTileDepth);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  };
  for (int64_t k = 0; k < whole; ++k) step(k, right + k * kTileDepth * kColumns);
  if (last) step(whole, last);
  constexpr int64_t kSums = kColumns * sizeof(int32_t);
  _tile_stored(0, sums, kSums);
  _tile_stored(1, sums + kTileRows, kSums);
  if constexpr (kTwo) {
    _tile_stored(2, sums + kTileRows * kColumns, kSums);
    _tile_stored(3, sums + kTileRows * kColumns + kTileRows, kSums);
  }
}

}  // namespace relax2xla_integers
#endif

#endif  // RELAX2XLA_INTEGERS_TILES_H_

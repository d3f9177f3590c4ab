// Matrix products of a few rows with packed weights: bfloat16, int8 and int4.
#include <memory>

#include "common.h"

// N and K are multiples of 32. Each thread takes a range of outputs and walks it in panels whose
// weights stay in its cache while all rows pass by. Weights are fetched well ahead of their use: the
// CPU's own prefetching stops at the end of every page.

constexpr i64 PANEL_BYTES = 256 << 10, CHUNK_BYTES = 512 << 10, AHEAD_BYTES = 2048;

// A tile has as many sums as the registers hold. Inlined into its walk, it would lose some of them.
#define TILE static __attribute__((noinline)) void

// What must be in a register by now: gcc 12 would otherwise gather all products of a step before it
// adds them, and spill the sums.
template <class V> static INLINE V keep(V v) {
  asm volatile("" : "+x"(v));
  return v;
}
static INLINE __m256i bits(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static INLINE __m256i four(const int8_t *p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
static INLINE void fetch(const void *p) { _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0); }

// f(low, high) for each panel of this thread's outputs; every thread of a parallel region calls it.
template <class F> static INLINE void panels(i64 N, i64 bytes_per_output, F &&f) {
  i64 panel = std::max<i64>(PANEL_BYTES / bytes_per_output / 32, 1) * 32;
  i64 thread = omp_get_thread_num(), threads = omp_get_num_threads(), blocks = N / 32;
  i64 low = blocks * thread / threads * 32, high = blocks * (thread + 1) / threads * 32;
  for (i64 n = low; n < high; n += panel) f(n, std::min(high, n + panel));
}

// Room for a chunk of the rows in the form a kernel wants, small enough to stay in the cache. They lie
// apart by a little more than K, which may be a power of two: such rows evict each other.
template <class Number> struct Chunk {
  i64 stride, rows;
  std::unique_ptr<Number[]> numbers;
  Chunk(i64 T, i64 K) : stride(K + 64 / (i64)sizeof(Number)) {
    i64 fit = CHUNK_BYTES / (stride * (i64)sizeof(Number)) / 24;
    rows = std::min(T, std::max<i64>(fit, 1) * 24);  // whole tiles of 6 and of 8
    numbers.reset(new Number[rows * stride]);
  }
  Number *row(i64 t) const { return numbers.get() + t * stride; }
};

// bfloat16, the rows widened to float32. weight [N/16][K/2][16][2]
template <int ROWS, int COLUMNS, class Out>
TILE bf16_tile(const float *x, i64 stride, const bf16 *weight, const float *bias, Out *y, i64 N, i64 K,
               i64 n) {
  __m256 sums[ROWS * COLUMNS], part[COLUMNS];
  unroll<COLUMNS>([&](auto c) {
    __m256 b = bias ? load(bias + n + c * 8) : _mm256_setzero_ps();
    unroll<ROWS>([&](auto r) { sums[r * COLUMNS + c] = b; });
  });
  const bf16 *w = weight + n * K;
  auto pairs = [&](auto c) { return w + c / 2 * 16 * K + c % 2 * 16; };
  auto add = [&](const float *a) __attribute__((always_inline)) {
    unroll<ROWS>([&](auto r) {
      __m256 number = _mm256_broadcast_ss(a + r * stride);
      unroll<COLUMNS>([&](auto c) {
        __m256 &sum = sums[r * COLUMNS + c];
        sum = keep(_mm256_fmadd_ps(part[c], number, sum));
      });
    });
  };
  for (i64 k = 0; k < K; k += 2, w += 32) {
    unroll<COLUMNS>([&](auto c) { part[c] = keep(firsts(bits(pairs(c)))); });
    unroll<COLUMNS / 2>([&](auto c) { fetch(pairs(std::integral_constant<int, c * 2>{})); });
    add(x + k);
    // Twelve sums leave no registers for the pairs: they are read again.
    asm volatile("" : "+r"(w));
    unroll<COLUMNS>([&](auto c) { part[c] = keep(seconds(bits(pairs(c)))); });
    add(x + k + 1);
  }
  unroll<ROWS>([&](auto r) {
    unroll<COLUMNS>([&](auto c) { store(y + r * N + n + c * 8, sums[r * COLUMNS + c]); });
  });
}
template <class Out>
static void bf16_linear(const bf16 *x, const bf16 *weight, const float *bias, Out *y, i64 T, i64 N,
                        i64 K) {
  Chunk<float> chunk(T, K);
  for (i64 start = 0; start < T; start += chunk.rows, x += chunk.rows * K, y += chunk.rows * N) {
    i64 rows = std::min(chunk.rows, T - start);
#pragma omp parallel for if (rows > 4)
    for (i64 t = 0; t < rows; t++)
      for (i64 k = 0; k < K; k += 8) store(chunk.row(t) + k, load(x + t * K + k));
#pragma omp parallel
    panels(N, 2 * K, [&](i64 low, i64 high) {
      i64 t = 0;
#define WALK(ROWS, COLUMNS)                                                                        \
  for (; t + ROWS <= rows; t += ROWS)                                                              \
    for (i64 n = low; n < high; n += COLUMNS * 8)                                                  \
      bf16_tile<ROWS, COLUMNS>(chunk.row(t), chunk.stride, weight, bias, y + t * N, N, K, n);
      WALK(6, 2) WALK(4, 2) WALK(2, 4) WALK(1, 4)
#undef WALK
    });
  }
}
API void linear_bf16(const bf16 *x, const bf16 *w, const float *bias, void *y, i64 wide, i64 T,
                     i64 N, i64 K) {
  if (wide) bf16_linear(x, w, bias, (float *)y, T, N, K);
  else bf16_linear(x, w, bias, (bf16 *)y, T, N, K);
}

// Rows to int8, symmetric, a scale per row. sums: of each group of `group` numbers, times `times`,
// which takes back that weights are stored with an offset. A row with anything that is not a
// finite number gets NaN for its scale, and so for every result: its request must fail, and no other. The same as with AVX512.
API void quantise_rows(const bf16 *x, int8_t *q, float *scales, int32_t *sums, i64 T, i64 K,
                       i64 group, i64 times) {
  const __m256 sign = _mm256_set1_ps(-0.f);
#pragma omp parallel for if (T > 4)
  for (i64 t = 0; t < T; t++) {
    const bf16 *row = x + t * K;
    // As whole numbers: max_ps forgets a NaN, whose bits are above those of every number.
    __m256i largest = _mm256_setzero_si256();
    for (i64 k = 0; k < K; k += 8)
      largest = _mm256_max_epi32(largest, _mm256_castps_si256(_mm256_andnot_ps(sign, load(row + k))));
    float scale = number(most(largest)) / 127.f;
    if (!std::isfinite(scale)) {
      scales[t] = NAN;
      memset(q + t * K, 0, K);
      memset(sums + t * (K / group), 0, K / group * sizeof(int32_t));
      continue;
    }
    if (scale == 0) scale = 1;
    scales[t] = scale;
    __m256 step = _mm256_set1_ps(scale);
    for (i64 g = 0; g < K / group; g++) {
      __m256i total = _mm256_setzero_si256();
      for (i64 k = g * group; k < (g + 1) * group; k += 16) {
        __m256i a = _mm256_cvtps_epi32(_mm256_div_ps(load(row + k), step));
        __m256i b = _mm256_cvtps_epi32(_mm256_div_ps(load(row + k + 8), step));
        total = _mm256_add_epi32(total, _mm256_add_epi32(a, b));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        __m128i low = _mm256_castsi256_si128(both), high = _mm256_extracti128_si256(both, 1);
        _mm_storeu_si128((__m128i *)(q + t * K + k), _mm_packs_epi16(low, high));
      }
      sums[t * (K / group) + g] = (int32_t)times * sum(total);
    }
  }
}

// int8 by int8. weight [N/16][K/4][16][4], stored + 128; sums: of a row, times 128.
//
// The fastest way adds four products in an int16, which 255 times 127 twice would overflow. But if of
// the four whole numbers of a row that meet there the positive ones add up to no more than 128, nor
// the negative ones to less than -128, then weights of 255 cannot overflow it. So rows are bounded:
// what exceeds that is taken off and listed, to be multiplied apart, four numbers at a time. The
// result is exact either way; rows have few large numbers, so lists are short.
struct Excess {
  int32_t at;  // of the weights of these inputs, from those of input 0
  int8_t four[4];
};
struct Bounded : Chunk<int8_t> {
  i64 longest;  // every four numbers twice
  std::unique_ptr<Excess[]> lists;
  std::unique_ptr<i64[]> lengths;
  Bounded(i64 T, i64 K)
      : Chunk(T, K), longest(K / 2), lists(new Excess[rows * longest]), lengths(new i64[rows]) {}
  void bound(const int8_t *x, i64 K, i64 t);
};

// Inputs 0, 1, 4 and 5 of eight meet in one int16, the others in another. Returns how many were listed.
static i64 bound_eight(int8_t *eight, int32_t at, Excess *list) {
  int over[8];
  for (int pair = 0; pair < 4; pair += 2) {
    int up = 128, down = -128;  // what there still is room for
    for (int i : {pair, pair + 1, pair + 4, pair + 5}) {
      int number = eight[i], kept = std::max(std::min(number, up), down);
      (number > 0 ? up : down) -= kept;
      eight[i] = kept;
      over[i] = number - kept;
    }
  }
  i64 found = 0;
  for (int half = 0; half < 8; half += 4)
    for (int *four = over + half; four[0] | four[1] | four[2] | four[3]; found++) {
      list[found].at = at + half * 16;
      for (int i = 0; i < 4; i++) {
        list[found].four[i] = std::max(std::min(four[i], 64), -64);
        four[i] -= list[found].four[i];
      }
    }
  return found;
}
void Bounded::bound(const int8_t *x, i64 K, i64 t) {
  const __m256i zero = _mm256_setzero_si256(), ones = _mm256_set1_epi8(1);
  int8_t *out = row(t);
  Excess *list = lists.get() + t * longest, *end = list;
  for (i64 k = 0; k < K; k += 32) {
    __m256i v = bits(x + k);
    _mm256_storeu_si256((__m256i *)(out + k), v);
    __m256i up = _mm256_maddubs_epi16(ones, _mm256_max_epi8(v, zero));
    __m256i down = _mm256_maddubs_epi16(ones, _mm256_min_epi8(v, zero));
    up = _mm256_add_epi16(up, _mm256_srli_epi64(up, 32));
    down = _mm256_add_epi16(down, _mm256_srli_epi64(down, 32));
    __m256i over = _mm256_or_si256(_mm256_cmpgt_epi16(up, _mm256_set1_epi16(128)),
                                   _mm256_cmpgt_epi16(_mm256_set1_epi16(-128), down));
    // The first half of each eight holds the sums over both.
    uint32_t mask = _mm256_movemask_epi8(over) & 0x0f0f0f0f;
    for (i64 i = k; mask; i += 8, mask >>= 8)
      if (mask & 255) end += bound_eight(out + i, i * 16, end);
  }
  lengths[t] = end - list;
}

template <int ROWS, int COLUMNS, class Out>
TILE int8_tile(const Bounded &x, i64 t, const float *scales, const int32_t *sums, const uint8_t *weight,
               const float *weight_scales, const float *bias, Out *y, i64 N, i64 K, i64 n) {
  const uint8_t *w = weight + n / 16 * 16 * K + n % 16 * 4;
  const int8_t *row = x.row(t);
  const i64 stride = x.stride;
  const __m256i ones = keep(_mm256_set1_epi16(1));
  __m256i whole[ROWS * COLUMNS];
  unroll<ROWS * COLUMNS>([&](auto i) { whole[i] = _mm256_setzero_si256(); });
  auto add = [&](__m256i &sum, __m256i pairs) __attribute__((always_inline)) {
    sum = keep(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones)));
  };
  for (i64 k = 0; k < K; k += 8) {
    fetch(w + k * 16);
    fetch(w + k * 16 + 64);
    unroll<COLUMNS>([&](auto c) {
      __m256i a = bits(w + k * 16 + c * 32), b = bits(w + k * 16 + 64 + c * 32);
      unroll<ROWS>([&](auto r) {
        const int8_t *eight = row + r * stride + k;
        add(whole[r * COLUMNS + c], _mm256_add_epi16(_mm256_maddubs_epi16(a, four(eight)),
                                                     _mm256_maddubs_epi16(b, four(eight + 4))));
      });
    });
  }
  unroll<ROWS>([&](auto r) {
    const Excess *list = x.lists.get() + (t + r) * x.longest, *end = list + x.lengths[t + r];
    for (; list < end; list++)
      unroll<COLUMNS>([&](auto c) {
        __m256i pairs = _mm256_maddubs_epi16(bits(w + list->at + c * 32), four(list->four));
        add(whole[r * COLUMNS + c], pairs);
      });
  });
  unroll<COLUMNS>([&](auto c) {
    i64 m = n + c * 8;
    __m256 scale = load(weight_scales + m), b = bias ? load(bias + m) : _mm256_setzero_ps();
    unroll<ROWS>([&](auto r) {
      __m256i product = _mm256_sub_epi32(whole[r * COLUMNS + c], _mm256_set1_epi32(sums[r]));
      __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(product), _mm256_set1_ps(scales[r]));
      store(y + r * N + m, _mm256_fmadd_ps(v, scale, b));
    });
  });
}
template <class Out>
static void int8_linear(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                        const float *weight_scales, const float *bias, Out *y, i64 T, i64 N, i64 K) {
  Bounded chunk(T, K);
  for (i64 start = 0; start < T; start += chunk.rows) {
    i64 rows = std::min(chunk.rows, T - start);
#pragma omp parallel for if (rows > 4)
    for (i64 t = 0; t < rows; t++) chunk.bound(x + (start + t) * K, K, t);
#pragma omp parallel
    panels(N, K, [&](i64 low, i64 high) {
      i64 t = 0;
#define WALK(ROWS, COLUMNS)                                                                        \
  for (; t + ROWS <= rows; t += ROWS)                                                              \
    for (i64 n = low; n < high; n += COLUMNS * 8)                                                  \
      int8_tile<ROWS, COLUMNS>(chunk, t, scales + start + t, sums + start + t, w, weight_scales,   \
                               bias, y + (start + t) * N, N, K, n);
      WALK(8, 1) WALK(4, 2) WALK(2, 2) WALK(1, 2)
#undef WALK
    });
  }
}
API void linear_int8(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                     const float *weight_scales, const float *bias, void *y, i64 wide, i64 T, i64 N,
                     i64 K) {
  if (wide) int8_linear(x, scales, sums, w, weight_scales, bias, (float *)y, T, N, K);
  else int8_linear(x, scales, sums, w, weight_scales, bias, (bf16 *)y, T, N, K);
}

// int4 by int8, in groups of 32 inputs. weight [N/16][K/8][16][4]: the low half of a byte is input
// 8j + i, the high half 8j + 4 + i, stored + 8; scales [N/16][K/32][16]; sums: of a group, times 8.
// Sixteen products of a group meet in an int16, and 16 times 15 times 128 fits.
template <int ROWS, int COLUMNS, class Out>
TILE int4_tile(const int8_t *x, i64 stride, const float *scales, const int32_t *sums, const uint8_t *weight,
               const float *weight_scales, const float *bias, Out *y, i64 N, i64 K, i64 n) {
  const i64 groups = K / 32;
  const uint8_t *w = weight + n / 16 * 8 * K + n % 16 * 4;
  const float *group_scales = weight_scales + n / 16 * 16 * groups + n % 16;
  const __m256i low_half = keep(_mm256_set1_epi8(15)), ones = keep(_mm256_set1_epi16(1));
  __m256 totals[ROWS * COLUMNS];
  unroll<ROWS * COLUMNS>([&](auto i) { totals[i] = _mm256_setzero_ps(); });
  for (i64 g = 0; g < groups; g++, w += 256) {
    __m256i whole[ROWS * COLUMNS];
    unroll<4>([&](auto j) {
      fetch(w + j * 64);
      unroll<2>([&](auto half) {
        __m256i part[COLUMNS];
        unroll<COLUMNS>([&](auto c) {
          __m256i both = bits(w + j * 64 + c * 32);
          if (half) both = _mm256_srli_epi16(both, 4);
          part[c] = keep(_mm256_and_si256(both, low_half));
        });
        unroll<ROWS>([&](auto r) {
          __m256i a = four(x + r * stride + g * 32 + j * 8 + half * 4);
          unroll<COLUMNS>([&](auto c) {
            __m256i &sum = whole[r * COLUMNS + c], pairs = _mm256_maddubs_epi16(part[c], a);
            if constexpr (j == 0 && half == 0) sum = keep(pairs);
            else sum = keep(_mm256_add_epi16(sum, pairs));
          });
        });
      });
    });
    unroll<COLUMNS>([&](auto c) {
      __m256 scale = load(group_scales + g * 16 + c * 8);
      unroll<ROWS>([&](auto r) {
        __m256i product = _mm256_sub_epi32(_mm256_madd_epi16(whole[r * COLUMNS + c], ones),
                                           _mm256_set1_epi32(sums[r * groups + g]));
        __m256 &total = totals[r * COLUMNS + c];
        total = keep(_mm256_fmadd_ps(_mm256_cvtepi32_ps(product), scale, total));
      });
    });
  }
  unroll<COLUMNS>([&](auto c) {
    i64 m = n + c * 8;
    __m256 b = bias ? load(bias + m) : _mm256_setzero_ps();
    unroll<ROWS>([&](auto r) {
      store(y + r * N + m, _mm256_fmadd_ps(totals[r * COLUMNS + c], _mm256_set1_ps(scales[r]), b));
    });
  });
}
template <class Out>
static void int4_linear(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                        const float *weight_scales, const float *bias, Out *y, i64 T, i64 N, i64 K) {
  Chunk<int8_t> chunk(T, K);
  for (i64 start = 0; start < T; start += chunk.rows) {
    i64 rows = std::min(chunk.rows, T - start);
#pragma omp parallel for if (rows > 4)
    for (i64 t = 0; t < rows; t++) memcpy(chunk.row(t), x + (start + t) * K, K);
#pragma omp parallel
    panels(N, K / 2, [&](i64 low, i64 high) {
      i64 t = 0;
#define WALK(ROWS, COLUMNS)                                                                        \
  for (; t + ROWS <= rows; t += ROWS)                                                              \
    for (i64 n = low; n < high; n += COLUMNS * 8)                                                  \
      int4_tile<ROWS, COLUMNS>(chunk.row(t), chunk.stride, scales + start + t,                     \
                               sums + (start + t) * (K / 32), w, weight_scales, bias,              \
                               y + (start + t) * N, N, K, n);
      WALK(4, 2) WALK(2, 2) WALK(1, 2)
#undef WALK
    });
  }
}
API void linear_int4(const int8_t *x, const float *scales, const int32_t *sums, const uint8_t *w,
                     const float *weight_scales, const float *bias, void *y, i64 wide, i64 T, i64 N,
                     i64 K) {
  if (wide) int4_linear(x, scales, sums, w, weight_scales, bias, (float *)y, T, N, K);
  else int4_linear(x, scales, sums, w, weight_scales, bias, (bf16 *)y, T, N, K);
}

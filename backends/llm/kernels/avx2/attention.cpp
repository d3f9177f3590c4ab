// Rotary positions, the paged cache of keys and values, and attention over it.
#include "common.h"

#include <memory>

// A block of B tokens (B % 16 == 0) holds, for each key head, keys [D/2][B][2] and values
// [B/2][D][2], as for AVX512.

static void prepare(bf16 *head, const float *weight, const float *cosines, const float *sines,
                    i64 half, i64 D, float eps) {
  alignas(32) float v[512];
  for (i64 d = 0; d < D; d += 8) store(v + d, load(head + d));
  if (weight) {
    __m256 squares[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (i64 d = 0; d < D; d += 16)
      unroll<2>([&](auto i) {
        squares[i] = _mm256_fmadd_ps(load(v + d + i * 8), load(v + d + i * 8), squares[i]);
      });
    __m256 factor = _mm256_set1_ps(1.f / sqrtf(sum(_mm256_add_ps(squares[0], squares[1])) / D + eps));
    for (i64 d = 0; d < D; d += 8)
      store(v + d, _mm256_mul_ps(_mm256_mul_ps(load(v + d), factor), load(weight + d)));
  }
  i64 i = 0;
  for (; i + 8 <= half; i += 8) {
    __m256 a = load(v + i), b = load(v + half + i), c = load(cosines + i), s = load(sines + i);
    store(v + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    store(v + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; i < half; i++) {
    float a = v[i], b = v[half + i];
    v[i] = fmaf(a, cosines[i], -(b * sines[i]));
    v[half + i] = fmaf(b, cosines[i], a * sines[i]);
  }
  for (i64 d = 0; d < D; d += 8) store(head + d, load(v + d));
}

// qkv [T][(heads + 2 kv_heads) D], queries and keys normed and turned in place; keys and values go
// to their slots. q_weight, k_weight: float32 [D] or null. half: pairs of dimensions that turn.
API void store_kv(bf16 *qkv, const i64 *positions, const i64 *slots, const float *cosines,
                  const float *sines, i64 half, const float *q_weight, const float *k_weight,
                  float eps, bf16 *keys, bf16 *values, i64 T, i64 heads, i64 kv_heads, i64 D, i64 B) {
#pragma omp parallel for if (T > 4)
  for (i64 t = 0; t < T; t++) {
    bf16 *row = qkv + t * (heads + 2 * kv_heads) * D;
    const float *c = cosines + positions[t] * half, *s = sines + positions[t] * half;
    for (i64 h = 0; h < heads + kv_heads; h++)
      prepare(row + h * D, h < heads ? q_weight : k_weight, c, s, half, D, eps);
    i64 block = slots[t] / B, offset = slots[t] % B;
    for (i64 h = 0; h < kv_heads; h++) {
      const bf16 *k = row + (heads + h) * D, *v = row + (heads + kv_heads + h) * D;
      bf16 *to = keys + (block * kv_heads + h) * D * B + offset * 2;
      for (i64 d = 0; d < D; d += 2) memcpy(to + d * B, k + d, 4);
      to = values + ((block * kv_heads + h) * B + offset / 2 * 2) * D + offset % 2;
      for (i64 d = 0; d < D; d++) to[2 * d] = v[d];
    }
  }
}

// Attention goes through the keys in chunks that begin at multiples of CHUNK tokens, whoever asks,
// and scales what was mixed so far down whenever a chunk holds a higher score. A chunk is made of
// strips: STRIP tokens of one block.
constexpr i64 STRIP = 16, CHUNK = 256, MOST_QUERIES = 64;
constexpr i64 STRIDE = CHUNK + 16;  // between queries' scores: no power of two, for the cache's sake
constexpr float NONE = -1e30f;      // the score of a key that is not seen

// Where gcc 12 puts these functions into their caller it spills the sums, and a prompt takes half as
// long again.
#define OWN_REGISTERS __attribute__((noinline))

struct Strip {  // of one key head
  const bf16 *keys, *values;
};

// What a thread attends with: its queries in float32, their scores in a chunk and then the
// unnormed shares, what they mixed, the highest score so far and the shares' total.
struct Room {
  i64 D;
  std::unique_ptr<float[]> queries, scores, mixed;
  float top[MOST_QUERIES], total[MOST_QUERIES];

  explicit Room(i64 D)
      : D(D), queries(new float[MOST_QUERIES * D]), scores(new float[MOST_QUERIES * STRIDE]),
        mixed(new float[MOST_QUERIES * D]) {}
};

// sums[q] += the products of each of Q rows' `count` numbers with as many rows of 16 bfloat16, two
// of which lie side by side, `step` from the next two. One after the other, so that the result does
// not depend on Q. fetch(i, at) asks for what is needed soon, as every pair of rows passes by.
template <int Q, class F>
static INLINE void multiply(__m256 (&sums)[Q][2], const float *numbers, i64 stride, i64 count,
                            const bf16 *rows, i64 step, F &&fetch) {
  auto add = [&](i64 i, __m256 low, __m256 high) __attribute__((always_inline)) {
    unroll<Q>([&](auto q) __attribute__((always_inline)) {
      __m256 number = _mm256_broadcast_ss(numbers + q * stride + i);
      sums[q][0] = _mm256_fmadd_ps(low, number, sums[q][0]);
      sums[q][1] = _mm256_fmadd_ps(high, number, sums[q][1]);
    });
  };
  auto pairs = [&](i64 at) __attribute__((always_inline)) {
    return _mm256_loadu_si256((const __m256i *)(rows + at));
  };
  i64 i = 0, at = 0;
  for (; i + 2 <= count; i += 2, at += step) {
    fetch(i, at);
    add(i, firsts(pairs(at)), firsts(pairs(at + 16)));
    // Read again: kept meanwhile, the pairs would take registers from the sums.
    i64 again = at;
    asm("" : "+r"(again));
    add(i + 1, seconds(pairs(again)), seconds(pairs(again + 16)));
  }
  if (i < count) add(i, firsts(pairs(at)), firsts(pairs(at + 16)));
}

// The scores of queries [q, q + Q) for a strip. Meanwhile the next strip's keys and this one's
// values are fetched: the processor does not see by itself where blocks lie, and a single row in
// a long context took 1.8 times as long without.
template <int Q>
OWN_REGISTERS static void score_keys(Room &room, i64 q, const Strip *strips, i64 at, i64 B) {
  __m256 sums[Q][2];
  unroll<Q>([&](auto r) { sums[r][0] = sums[r][1] = _mm256_setzero_ps(); });
  multiply<Q>(sums, room.queries.get() + q * room.D, room.D, room.D, strips[at].keys, 2 * B,
              [&](i64 i, i64 row) __attribute__((always_inline)) {
                _mm_prefetch((const char *)(strips[at + 1].keys + row), _MM_HINT_T0);
                _mm_prefetch((const char *)(strips[at].values + i * STRIP), _MM_HINT_T1);
              });
  float *to = room.scores.get() + q * STRIDE + at * STRIP;
  unroll<Q>([&](auto r) {
    store(to + r * STRIDE, sums[r][0]);
    store(to + r * STRIDE + 8, sums[r][1]);
  });
}

// One query's scores of a chunk to shares, not yet divided by their total. It sees those in
// [low, high).
static void soften(Room &room, i64 q, i64 width, i64 low, i64 high, float cap) {
  float *v = room.scores.get() + q * STRIDE, *mixed = room.mixed.get() + q * room.D;
  const __m256 none = _mm256_set1_ps(NONE);
  const bool all = low <= 0 && width <= high;
  __m256 highest = none;
  for (i64 j = 0; j < width; j += 8) {
    __m256 x = load(v + j);
    if (cap > 0)
      x = _mm256_mul_ps(hyperbolic_tangent(_mm256_mul_ps(x, _mm256_set1_ps(1.f / cap))),
                        _mm256_set1_ps(cap));
    if (!all) {
      __m256i at = _mm256_add_epi32(_mm256_set1_epi32((int)j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
      __m256i unseen = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)low), at),
                                       _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)high - 1)));
      x = _mm256_blendv_ps(x, none, _mm256_castsi256_ps(unseen));
    }
    if (cap > 0 || !all) store(v + j, x);
    highest = _mm256_max_ps(highest, x);
  }
  const float before = room.top[q], now = std::max(before, most(highest));
  const __m256 top = _mm256_set1_ps(now);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (i64 j = 0; j < width; j += 16)
    unroll<2>([&](auto i) {
      __m256 x = load(v + j + i * 8);
      __m256 visible = _mm256_cmp_ps(x, none, _CMP_GT_OQ);
      __m256 share = _mm256_and_ps(visible, exponential(_mm256_sub_ps(x, top)));
      store(v + j + i * 8, share);
      sums[i] = _mm256_add_ps(sums[i], share);
    });
  room.top[q] = now;
  if (now > before) {
    __m256 factor = exponential(_mm256_set1_ps(before - now));
    room.total[q] *= _mm256_cvtss_f32(factor);
    for (i64 d = 0; d < room.D; d += 8) store(mixed + d, _mm256_mul_ps(load(mixed + d), factor));
  }
  room.total[q] += sum(_mm256_add_ps(sums[0], sums[1]));
}

// The values that queries [q, q + Q) mix in a chunk of `tokens`, for the dimensions [d, d + 16).
// What lies behind the last token is left alone: it may be no number.
template <int Q>
OWN_REGISTERS static void mix_values(Room &room, i64 q, const Strip *strips, i64 tokens, i64 d) {
  __m256 sums[Q][2];
  float *mixed = room.mixed.get() + q * room.D + d;
  unroll<Q>([&](auto r) {
    sums[r][0] = load(mixed + r * room.D);
    sums[r][1] = load(mixed + r * room.D + 8);
  });
  const float *shares = room.scores.get() + q * STRIDE;
  for (i64 j = 0; j < tokens; j += STRIP, strips++)
    multiply<Q>(sums, shares + j, STRIDE, std::min(STRIP, tokens - j), strips[0].values + d * 2,
                2 * room.D, [&](i64, i64 row) __attribute__((always_inline)) {
                  _mm_prefetch((const char *)(strips[1].values + d * 2 + row), _MM_HINT_T0);
                });
  unroll<Q>([&](auto r) {
    store(mixed + r * room.D, sums[r][0]);
    store(mixed + r * room.D + 8, sums[r][1]);
  });
}

// f(Q, q) for the queries [q, q + Q) until all had their turn: at most six at once, for whose sums
// there are registers, and seven as four and three, since one alone waits for its own sums.
template <class F> static INLINE void in_tiles(i64 queries, F &&f) {
  for (i64 q = 0, size; q < queries; q += size) {
    const i64 left = queries - q, tiles = (left + 5) / 6;
    size = (left + tiles - 1) / tiles;
    unroll<6>([&](auto i) {
      if (size == i + 1) f(std::integral_constant<int, i + 1>{}, q);
    });
  }
}

struct Attention {
  const bf16 *qkv, *keys, *values;
  bf16 *y;
  i64 heads, kv_heads, D, B, window;
  float scale, cap;
};

// The queries of `rows` consecutive rows for one key head; the last row sees `context` tokens.
static void attend_tile(const Attention &a, i64 row, i64 rows, i64 context, const int32_t *table, i64 h,
                        Room &room) {
  const i64 group = a.heads / a.kv_heads, count = rows * group, D = a.D;
  const __m256 scale = _mm256_set1_ps(a.scale);
  for (i64 q = 0; q < count; q++) {
    const i64 r = row + q / group, at = (h * group + q % group) * D;
    const bf16 *from = a.qkv + r * (a.heads + 2 * a.kv_heads) * D + at;
    for (i64 d = 0; d < D; d += 8) {
      store(room.queries.get() + q * D + d, _mm256_mul_ps(load(from + d), scale));
      store(room.mixed.get() + q * D + d, _mm256_setzero_ps());
    }
    room.top[q] = NONE;
    room.total[q] = 0;
  }
  const i64 earliest = context - rows + 1;  // what the first row sees ends here
  i64 first = a.window ? std::max<i64>(0, earliest - a.window) / STRIP * STRIP : 0;
  for (i64 end; first < context; first = end) {
    end = std::min(first / CHUNK * CHUNK + CHUNK, context);
    const i64 count_strips = (end - first + STRIP - 1) / STRIP;
    Strip strips[CHUNK / STRIP + 1];  // one more: it is fetched early
    for (i64 i = 0; i <= count_strips; i++) {
      const i64 at = std::min(first + i * STRIP, context - 1) / STRIP * STRIP;
      const i64 head = ((i64)table[at / a.B] * a.kv_heads + h) * D * a.B;
      strips[i] = {a.keys + head + at % a.B * 2, a.values + head + at % a.B * D};
    }
    for (i64 i = 0; i < count_strips; i++)
      in_tiles(count, [&](auto Q, i64 q) { score_keys<Q>(room, q, strips, i, a.B); });
    for (i64 q = 0; q < count; q++) {
      i64 high = earliest + q / group, low = a.window ? high - a.window : 0;
      soften(room, q, count_strips * STRIP, low - first, high - first, a.cap);
    }
    for (i64 d = 0; d < D; d += 16)
      in_tiles(count, [&](auto Q, i64 q) { mix_values<Q>(room, q, strips, end - first, d); });
  }
  for (i64 q = 0; q < count; q++) {
    bf16 *to = a.y + (row + q / group) * a.heads * D + (h * group + q % group) * D;
    const __m256 factor = _mm256_set1_ps(1.f / room.total[q]);
    for (i64 d = 0; d < D; d += 8)
      store(to + d, _mm256_mul_ps(load(room.mixed.get() + q * D + d), factor));
  }
}

// spans int64 [S][3]: first row, end row, context. tables int32 [S][longest]. window 0 and cap 0:
// none. y [T][heads D]. At most MOST_QUERIES heads share a key head.
API void attend(const bf16 *qkv, const bf16 *keys, const bf16 *values, bf16 *y, const i64 *spans,
                const int32_t *tables, i64 longest, i64 S, i64 heads, i64 kv_heads, i64 D, i64 B,
                i64 window, float scale, float cap) {
  const Attention a{qkv, keys, values, y, heads, kv_heads, D, B, window, scale, cap};
  const i64 group = heads / kv_heads, tile = std::max<i64>(1, 48 / group);
  struct Task { i64 span, row, rows, context, head; };
  std::vector<Task> tasks;
  for (i64 s = 0; s < S; s++) {
    i64 first = spans[s * 3], end = spans[s * 3 + 1], context = spans[s * 3 + 2];
    for (i64 row = first; row < end; row += tile) {
      i64 rows = std::min(tile, end - row);
      for (i64 h = 0; h < kv_heads; h++) tasks.push_back({s, row, rows, context - (end - row - rows), h});
    }
  }
#pragma omp parallel
  {
    Room room(D);
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < tasks.size(); i++) {
      const Task &t = tasks[i];
      attend_tile(a, t.row, t.rows, t.context, tables + t.span * longest, t.head, room);
    }
  }
}

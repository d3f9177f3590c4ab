// Rotary positions, the paged cache of keys and values, and attention over it.
#include "common.h"

// A block of B tokens (B % 16 == 0) holds, for each key head, keys [D/2][B][2] and values
// [B/2][D][2]: what one instruction multiplies lies side by side.

static void prepare(bf16 *head, const float *weight, const float *cosines, const float *sines,
                    i64 half, i64 D, float eps) {
  alignas(64) float v[512];
  for (i64 d = 0; d < D; d += 16) store(v + d, load(head + d));
  if (weight) {
    __m512 squares = _mm512_setzero_ps();
    for (i64 d = 0; d < D; d += 16) squares = _mm512_fmadd_ps(load(v + d), load(v + d), squares);
    __m512 factor = _mm512_set1_ps(1.f / sqrtf(_mm512_reduce_add_ps(squares) / D + eps));
    for (i64 d = 0; d < D; d += 16)
      store(v + d, _mm512_mul_ps(_mm512_mul_ps(load(v + d), factor), load(weight + d)));
  }
  for (i64 i = 0; i < half; i++) {
    float a = v[i], b = v[half + i];
    v[i] = a * cosines[i] - b * sines[i];
    v[half + i] = b * cosines[i] + a * sines[i];
  }
  for (i64 d = 0; d < D; d += 16) store(head + d, load(v + d));
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

struct Scores {  // of Q queries for the keys [first, last), `stride` apart; then probabilities
  float *values;
  bf16 *shares;
  i64 first, last, stride;
};

template <int Q>
static INLINE void score_keys(const bf16 *const *queries, const bf16 *k, i64 B, i64 D, float *to,
                              i64 stride) {
  __m512 sums[Q];
  unroll<Q>([&](auto q) { sums[q] = _mm512_setzero_ps(); });
  for (i64 d = 0; d < D; d += 2) {
    __m512bh part = (__m512bh)_mm512_loadu_si512(k + d * B);
    unroll<Q>([&](auto q) {
      sums[q] = _mm512_dpbf16_ps(sums[q], part, (__m512bh)_mm512_set1_epi32(pair(queries[q] + d)));
    });
  }
  unroll<Q>([&](auto q) { store(to + q * stride, sums[q]); });
}

// One query's scores to shares that add up to one. It sees the keys [low, high).
static void soften(Scores s, i64 q, i64 low, i64 high, float scale, float cap) {
  float *v = s.values + q * s.stride;
  bf16 *to = s.shares + q * s.stride;
  const __m512 none = _mm512_set1_ps(-1e30f);
  __m512 most = none;
  for (i64 j = 0; j < s.stride; j += 16) {
    __m512 x = _mm512_mul_ps(load(v + j), _mm512_set1_ps(scale));
    if (cap > 0)
      x = _mm512_mul_ps(hyperbolic_tangent(_mm512_mul_ps(x, _mm512_set1_ps(1.f / cap))),
                        _mm512_set1_ps(cap));
    __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)(s.first + j)),
                                  _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __mmask16 visible = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32((int)low)) &
                     _mm512_cmplt_epi32_mask(at, _mm512_set1_epi32((int)high));
    x = _mm512_mask_mov_ps(none, visible, x);
    store(v + j, x);
    most = _mm512_max_ps(most, x);
  }
  __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most)), sum = _mm512_setzero_ps();
  for (i64 j = 0; j < s.stride; j += 16) {
    __m512 x = load(v + j);
    __mmask16 visible = _mm512_cmp_ps_mask(x, none, _CMP_GT_OQ);
    __m512 e = _mm512_maskz_mov_ps(visible, exponential(_mm512_sub_ps(x, top)));
    store(v + j, e);
    sum = _mm512_add_ps(sum, e);
  }
  __m512 share = _mm512_set1_ps(1.f / _mm512_reduce_add_ps(sum));
  for (i64 j = 0; j < s.stride; j += 16) store(to + j, _mm512_mul_ps(load(v + j), share));
}

// Q queries' sums of values, weighted by their shares, for the dimensions [d, d + 16 V).
template <int Q, int V>
static INLINE void mix_values(Scores s, i64 q0, const bf16 *values, const int32_t *table, i64 head_size,
                              i64 h, i64 B, i64 D, i64 d, bf16 *const *results) {
  __m512 sums[Q * V];
  unroll<Q * V>([&](auto i) { sums[i] = _mm512_setzero_ps(); });
  for (i64 at = s.first; at < s.last; at += B) {
    const bf16 *v = values + (i64)table[at / B] * head_size + h * B * D + d * 2;
    i64 end = std::min(B, s.last - at);
    for (i64 j = 0; j < end; j += 2) {
      __m512bh part[V];
      unroll<V>([&](auto i) { part[i] = (__m512bh)_mm512_loadu_si512(v + j * D + i * 32); });
      unroll<Q>([&](auto q) {
        const bf16 *p = s.shares + (q0 + q) * s.stride + at - s.first + j;
        __m512bh share = (__m512bh)_mm512_set1_epi32(pair(p));
        unroll<V>([&](auto i) { sums[q * V + i] = _mm512_dpbf16_ps(sums[q * V + i], part[i], share); });
      });
    }
  }
  unroll<Q>([&](auto q) { unroll<V>([&](auto i) { store(results[q0 + q] + d + i * 16, sums[q * V + i]); }); });
}

struct Attention {
  const bf16 *qkv, *keys, *values;
  bf16 *y;
  i64 heads, kv_heads, D, B, window;
  float scale, cap;
};

// The queries of `rows` consecutive rows for one key head; the last row sees `context` tokens.
static void attend_tile(const Attention &a, i64 row, i64 rows, i64 context, const int32_t *table, i64 h,
                        std::vector<float> &room) {
  const i64 group = a.heads / a.kv_heads, count = rows * group;
  const i64 earliest = context - rows + 1;  // what the first row sees ends here
  i64 first = a.window ? std::max<i64>(0, earliest - a.window) : 0;
  first = first / a.B * a.B;
  const i64 stride = (context - first + a.B - 1) / a.B * a.B;
  if ((i64)room.size() < count * stride * 3 / 2 + 16) room.resize(count * stride * 2 + 16);
  Scores s{room.data(), (bf16 *)(room.data() + count * stride), first, context, stride};
  const bf16 *queries[64];
  bf16 *results[64];
  for (i64 i = 0; i < count; i++) {
    i64 r = row + i / group, at = (h * group + i % group) * a.D;
    queries[i] = a.qkv + r * (a.heads + 2 * a.kv_heads) * a.D + at;
    results[i] = a.y + r * a.heads * a.D + at;
  }
  const i64 head_size = a.kv_heads * a.D * a.B;
  for (i64 at = first; at < context; at += a.B) {
    const bf16 *k = a.keys + (i64)table[at / a.B] * head_size + h * a.D * a.B;
    for (i64 j = 0; j < a.B && at + j < context; j += 16) {
      float *to = s.values + at - first + j;
      i64 q = 0;
#define WALK(Q) for (; q + Q <= count; q += Q) score_keys<Q>(queries + q, k + j * 2, a.B, a.D, to + q * stride, stride);
      WALK(12) WALK(8) WALK(7) WALK(4) WALK(2) WALK(1)
#undef WALK
    }
  }
  for (i64 q = 0; q < count; q++) {
    i64 high = earliest + q / group;
    soften(s, q, a.window ? std::max<i64>(0, high - a.window) : 0, high, a.scale, a.cap);
  }
  i64 d = 0;
#define WALK(Q, V) for (; q + Q <= count; q += Q) mix_values<Q, V>(s, q, a.values, table, head_size, h, a.B, a.D, d, results);
  for (; d + 64 <= a.D; d += 64) { i64 q = 0; WALK(5, 4) WALK(4, 4) WALK(2, 4) WALK(1, 4) }
  for (; d + 16 <= a.D; d += 16) { i64 q = 0; WALK(8, 1) WALK(4, 1) WALK(2, 1) WALK(1, 1) }
#undef WALK
}

// spans int64 [S][3]: first row, end row, context. tables int32 [S][longest]. window 0 and cap 0:
// none. y [T][heads D]
API void attend(const bf16 *qkv, const bf16 *keys, const bf16 *values, bf16 *y, const i64 *spans,
                const int32_t *tables, i64 longest, i64 S, i64 heads, i64 kv_heads, i64 D, i64 B,
                i64 window, float scale, float cap) {
  const Attention a{qkv, keys, values, y, heads, kv_heads, D, B, window, scale, cap};
  const i64 group = heads / kv_heads, tile = std::max<i64>(1, 24 / group);
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
    std::vector<float> room;
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < tasks.size(); i++) {
      const Task &t = tasks[i];
      attend_tile(a, t.row, t.rows, t.context, tables + t.span * longest, t.head, room);
    }
  }
}

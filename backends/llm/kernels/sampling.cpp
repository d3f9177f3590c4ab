// A token for each row of logits, without sorting the vocabulary. Portable: no instructions of one
// CPU by name; the loops over a block are written so that the compiler vectorises them.
//
// The rule is that of backends/llm/pick.py. A row's token depends on nothing but the row: not on
// other rows, nor on how many threads there are.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#define API extern "C"
#define INLINE inline __attribute__((always_inline))

using i64 = int64_t;

namespace {

constexpr i64 BLOCK = 128;      // tokens whose largest logit and sum of weights are known
constexpr i64 CHUNK = 32;       // tokens passed over at once where few are wanted
constexpr i64 BINS = 1024;      // what a range of logits is divided into
constexpr i64 FEW = 256;        // what is sorted at once
constexpr float DEEPEST = -87;  // exponents below give weight 0: no numbers too small for a float

struct Wish {  // as the caller lays it out, all of it in doubles
  double temperature, top_k, top_p, min_p, uniform;
};

// What is kept: all logits above `least`, and the first `ties` of those that equal it.
struct Cut {
  float least;
  i64 ties;
};
constexpr Cut EVERYTHING = {-FLT_MAX, INT64_MAX};

// Tokens in the order of their ids; `ids` null where they are 0, 1, 2 …
struct Tokens {
  const float *logits;
  float *weights;
  const int32_t *ids;
  i64 count;
};

// Memory of one thread, kept from call to call: fresh pages cost more than the work in them.
struct Room {
  std::vector<float> tops, weights, kept, kept_weights, left, left_weights;
  std::vector<double> sums;
  std::vector<int32_t> ids, places;
  std::vector<std::pair<float, float>> sorted;

  void fit(i64 count) {
    if ((i64)weights.size() >= count) return;
    for (auto *one : {&weights, &kept, &kept_weights, &left, &left_weights}) one->resize(count);
    ids.resize(count);
    places.resize(count);
    tops.resize(count / BLOCK + 1);
    sums.resize(count / BLOCK + 1);
  }
};

i64 blocks_of(i64 count) { return (count + BLOCK - 1) / BLOCK; }
i64 end_of(i64 block, i64 count) { return std::min(count, (block + 1) * BLOCK); }

INLINE float exponential(float x) {  // of DEEPEST to 0; relative error about 1e-7
  const float magic = 12582912.f;    // adding it rounds to a whole number, in the lowest bits
  float shifted = x * 1.44269504f + magic, n = shifted - magic;
  float f = x - n * 0.693145752f;
  f = f - n * 1.42860677e-6f;
  float p = 1.f / 5040;
  p = p * f + 1.f / 720;
  p = p * f + 1.f / 120;
  p = p * f + 1.f / 24;
  p = p * f + 1.f / 6;
  p = p * f + .5f;
  p = p * f + 1.f;
  p = p * f + 1.f;
  uint32_t bits;
  memcpy(&bits, &shifted, 4);
  bits = (bits + 127) << 23;  // the magic number's own bits leave at the top
  float power;
  memcpy(&power, &bits, 4);
  return p * power;
}

// Whole numbers in the order of the floats they are made of, and back: a NaN is beyond infinity.
INLINE int32_t ordered(float x) {
  int32_t bits;
  memcpy(&bits, &x, 4);
  return bits ^ ((bits >> 31) & INT32_MAX);
}
float unordered(int32_t key) {
  key ^= (key >> 31) & INT32_MAX;
  float x;
  memcpy(&x, &key, 4);
  return x;
}

// The largest logit of each block, and of all; NaN where these are not numbers one can choose by.
float find_tops(const float *logits, i64 count, float *tops) {
  int32_t most = INT32_MIN, least = INT32_MAX;
  for (i64 b = 0; b < blocks_of(count); b++) {
    int32_t top = INT32_MIN, low = INT32_MAX;
#pragma omp simd reduction(max : top) reduction(min : low)
    for (i64 i = b * BLOCK; i < end_of(b, count); i++) {
      int32_t key = ordered(logits[i]);
      top = std::max(top, key);
      low = std::min(low, key);
    }
    tops[b] = unordered(top);
    most = std::max(most, top);
    least = std::min(least, low);
  }
  bool usable = ordered(-INFINITY) < most && most < ordered(INFINITY) && least >= ordered(-INFINITY);
  return usable ? unordered(most) : NAN;
}

i64 first_of(const float *logits, const float *tops, float top) {
  i64 b = 0;
  while (tops[b] != top) b++;
  i64 i = b * BLOCK;
  while (logits[i] != top) i++;
  return i;
}

double sum_of(const float *weights, i64 count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (i64 i = 0; i < count; i++) sum += weights[i];
  return sum;
}

// Weights exp((logit - top) * scale), 0 below `floor`; the sums of blocks, and of all. `tops`, where
// known, save blocks without weight.
double weigh(Tokens tokens, const float *tops, float top, float scale, float floor, double *sums) {
  const float *logits = tokens.logits;
  float *weights = tokens.weights;
  float deepest = floor > 0 ? std::max(DEEPEST, std::log(floor) - 1e-3f) : DEEPEST;
  double total = 0;
  for (i64 b = 0; b < blocks_of(tokens.count); b++) {
    i64 start = b * BLOCK, end = end_of(b, tokens.count);
    sums[b] = 0;
    if (tops && (tops[b] - top) * scale < deepest) {
      std::fill(weights + start, weights + end, 0.f);
      continue;
    }
    for (i64 i = start; i < end; i++) {
      float x = (logits[i] - top) * scale;
      float weight = exponential(x > DEEPEST ? x : DEEPEST);
      weights[i] = (x >= DEEPEST) & (weight >= floor) ? weight : 0.f;
    }
    sums[b] = sum_of(weights + start, end - start);
    total += sums[b];
  }
  return total;
}

// The rest of `cut_where` once the candidates are few: in order, until `wanted` is reached.
Cut cut_few(const float *logits, const float *weights, i64 count, double reached, double wanted,
            Room &room) {
  auto &sorted = room.sorted;
  sorted.clear();
  for (i64 i = 0; i < count; i++) sorted.push_back({logits[i], weights ? weights[i] : 1.f});
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  i64 ties = 0;
  for (i64 i = 0; i < count; i++) {
    ties = i && sorted[i].first == sorted[i - 1].first ? ties + 1 : 1;
    reached += sorted[i].second;
    // In another order the sum may have been a little more.
    if (reached >= wanted || i == count - 1) return {sorted[i].first, ties};
  }
  return EVERYTHING;
}

struct Bins {
  float high, scale;

  INLINE int32_t of(float logit) const {
    float place = (high - logit) * scale;
    return (int32_t)(place < BINS - 1 ? place : (float)(BINS - 1));
  }
};

// The places that are `near`, ascending; how many. Whole chunks without any are passed over.
template <class Near> INLINE i64 search(i64 count, Near near, int32_t *places) {
  i64 found = 0, i = 0;
  for (; i + CHUNK <= count; i += CHUNK) {
    int32_t here[CHUNK], any = 0;
    for (i64 j = 0; j < CHUNK; j++) here[j] = near(i + j);
    for (i64 j = 0; j < CHUNK; j++) any |= here[j];
    if (!any) continue;
    for (i64 j = 0; j < CHUNK; j++) {
      places[found] = (int32_t)(i + j);
      found += here[j];
    }
  }
  for (; i < count; i++) {
    places[found] = (int32_t)i;
    found += near(i);
  }
  return found;
}

// The sum of weights in each bin. Neighbours go into different tables: adding to what was just
// written must wait for it.
void fill(const float *logits, const float *weights, i64 count, Bins bins, double *table) {
  double second[BINS] = {};
  std::fill_n(table, BINS, 0.);
  for (i64 start = 0; start < count; start += BLOCK) {
    i64 here = std::min(BLOCK, count - start);
    const float *values = logits + start, *shares = weights ? weights + start : nullptr;
    int32_t places[BLOCK];
    for (i64 i = 0; i < here; i++) places[i] = bins.of(values[i]);
    for (i64 i = 0; i + 1 < here; i += 2) {
      table[places[i]] += shares ? shares[i] : 1.f;
      second[places[i + 1]] += shares ? shares[i + 1] : 1.f;
    }
    if (here % 2) table[places[here - 1]] += shares ? shares[here - 1] : 1.f;
  }
  for (i64 i = 0; i < BINS; i++) table[i] += second[i];
}

// Those of a bin that have any weight, to `left`: how many.
i64 keep_bin(const float *logits, const float *weights, i64 count, Bins bins, int32_t bin,
             Room &room) {
  auto near = [&](i64 i) { return bins.of(logits[i]) == bin; };
  i64 near_count = search(count, near, room.places.data()), found = 0;
  for (i64 i = 0; i < near_count; i++) {
    i64 place = room.places[i];
    float weight = weights ? weights[place] : 1.f;
    room.left[found] = logits[place];
    room.left_weights[found] = weight;
    found += weight > 0;
  }
  return found;
}

// The least set of largest logits whose weights, 1 where `weights` is null, reach `wanted`; all
// where they do not. Of logits up to `high`, most of them not below `low`. The bin in which the sum
// passes `wanted` is divided anew, until it holds few, or equals.
Cut cut_where(const float *logits, const float *weights, i64 count, double wanted, float high,
              float low, Room &room) {
  float *left = room.left.data();
  double table[BINS], reached = 0;
  while (count > FEW && high > low) {
    Bins bins = {high, BINS / (high - low)};
    if (!(bins.scale > 0 && bins.scale <= FLT_MAX)) break;
    fill(logits, weights, count, bins, table);
    int32_t bin = 0;
    while (bin < BINS && reached + table[bin] < wanted) reached += table[bin++];
    if (bin == BINS) return EVERYTHING;
    count = keep_bin(logits, weights, count, bins, bin, room);
    logits = left;
    weights = weights ? room.left_weights.data() : nullptr;
    if (count <= FEW) break;
    low = *std::min_element(left, left + count);
    high = *std::max_element(left, left + count);
  }
  if (count <= FEW || high > low) return cut_few(logits, weights, count, reached, wanted, room);
  double ties = std::ceil((wanted - reached) / (weights ? weights[0] : 1.f));
  return {high, (i64)std::clamp(ties, 1., (double)count)};
}

// Copy what is kept, with its weights where there are any, to the front of `room`: from there to
// there is allowed.
Tokens compact(Tokens from, Cut cut, Room &room) {
  float *logits = room.kept.data(), *weights = room.kept_weights.data();
  int32_t *ids = room.ids.data();
  auto near = [&](i64 i) { return from.logits[i] >= cut.least; };
  i64 near_count = search(from.count, near, room.places.data()), found = 0;
  for (i64 i = 0; i < near_count; i++) {
    i64 place = room.places[i];
    float logit = from.logits[place];
    bool tie = logit == cut.least;
    logits[found] = logit;
    ids[found] = from.ids ? from.ids[place] : (int32_t)place;
    if (from.weights) weights[found] = from.weights[place];
    found += !tie | (cut.ties > 0);
    cut.ties -= tie;
  }
  return {logits, from.weights ? weights : nullptr, ids, found};
}

// The k largest. The k-th largest of the blocks' largest is a bound that few others reach.
Tokens keep_largest(const float *logits, i64 count, i64 k, float top, Room &room) {
  Cut bound = EVERYTHING;
  if (i64 blocks = blocks_of(count); k <= blocks) {
    float *tops = room.left.data();
    std::copy_n(room.tops.data(), blocks, tops);
    std::nth_element(tops, tops + k - 1, tops + blocks, std::greater<>());
    bound.least = std::max(bound.least, tops[k - 1]);
  }
  Tokens near = compact({logits, nullptr, nullptr, count}, bound, room);
  if (near.count <= k) return near;
  float low = *std::min_element(near.logits, near.logits + near.count);
  Cut cut = cut_where(near.logits, nullptr, near.count, (double)k, top, low, room);
  return compact(near, cut, room);
}

// Take their weight from tokens that are cut off; the new sums of blocks, and of all.
double trim(Tokens tokens, Cut cut, double *sums) {
  const float *logits = tokens.logits;
  float *weights = tokens.weights;
  double total = 0;
  for (i64 b = 0; b < blocks_of(tokens.count); b++) {
    i64 start = b * BLOCK, end = end_of(b, tokens.count);
    int32_t equal = 0;
    for (i64 i = start; i < end; i++) equal += logits[i] == cut.least;
    for (i64 i = start; i < end; i++) weights[i] = logits[i] >= cut.least ? weights[i] : 0.f;
    if (equal <= cut.ties) {
      cut.ties -= equal;
    } else {
      for (i64 i = start; i < end; i++) {
        if (logits[i] != cut.least) continue;
        if (cut.ties > 0)
          cut.ties--;
        else
          weights[i] = 0;
      }
    }
    sums[b] = sum_of(weights + start, end - start);
    total += sums[b];
  }
  return total;
}

// Keep the likeliest that together have the share `top_p` of `total`; their new total.
double trim_to_share(Tokens &tokens, double top_p, double total, float top, float scale,
                     Room &room) {
  // Even all together, tokens this unlikely would not make up what may be cut off.
  double dust = (1 - top_p) * total / (double)tokens.count / 2;
  float low = std::max(top + (float)std::log(dust) / scale, -FLT_MAX);
  i64 near = 0;
  for (i64 i = 0; i < tokens.count; i++) near += tokens.logits[i] >= low;
  if (near < tokens.count / 2) tokens = compact(tokens, {low, near}, room);
  Cut cut = cut_where(tokens.logits, tokens.weights, tokens.count, top_p * total, top, low, room);
  return trim(tokens, cut, room.sums.data());
}

// The token in whose share of the weights `target` lies; rounding may leave it beyond the last.
i64 pick(Tokens tokens, const double *sums, double target) {
  i64 block = 0, last = 0;
  double before = 0, reached = 0;
  for (i64 b = 0; b < blocks_of(tokens.count) && !(reached > target); b++) {
    if (sums[b] == 0) continue;
    block = b;
    before = reached;
    reached += sums[b];
  }
  reached = before;
  for (i64 i = block * BLOCK; i < end_of(block, tokens.count) && !(reached > target); i++) {
    if (tokens.weights[i] == 0) continue;
    last = i;
    reached += tokens.weights[i];
  }
  return tokens.ids ? tokens.ids[last] : last;
}

i64 choose(const float *logits, i64 count, const Wish &wish, Room &room) {
  room.fit(count);
  float *tops = room.tops.data(), top = find_tops(logits, count, tops);
  if (std::isnan(top)) return -1;
  if (wish.temperature == 0) return first_of(logits, tops, top);
  float scale = (float)std::min(1 / wish.temperature, 1e30);
  Tokens tokens = {logits, nullptr, nullptr, count};
  if (wish.top_k > 0 && wish.top_k < (double)count) {
    tokens = keep_largest(logits, count, (i64)wish.top_k, top, room);
    tops = nullptr;
  }
  tokens.weights = room.weights.data();
  double *sums = room.sums.data();
  double total = weigh(tokens, tops, top, scale, (float)wish.min_p, sums);
  if (wish.top_p < 1) total = trim_to_share(tokens, wish.top_p, total, top, scale, room);
  return pick(tokens, sums, wish.uniform * total);
}

}  // namespace

// logits float32 [T][V]; wishes [T]; tokens [T]: what is chosen, -1 where logits are not numbers.
API void sample_rows(const float *logits, const Wish *wishes, i64 *tokens, i64 T, i64 V) {
#pragma omp parallel for schedule(dynamic) if (T > 1)
  for (i64 t = 0; t < T; t++) {
    static thread_local Room room;
    tokens[t] = choose(logits + t * V, V, wishes[t], room);
  }
}

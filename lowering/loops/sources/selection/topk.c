/* Operators: TopK */

/* How many more entries than k are kept before all but the first k of them are dropped, at least. */
#define SPARE_ 128
/* Elements that are compared with the last of k at once. */
#define AT_ONCE_ 8
/* Entries up to which inserting each of them sorts faster than dividing them. */
#define FEW_ 16

/* An element as a number that is larger the earlier the element comes, and its place: of two equal ones the lower. NaN
 * is larger than all numbers, and both zeros are one. Elements of 32 bits and their places are one number. */
#if IS_LONG(I0)
typedef uint64_t LOCAL(key);
typedef double LOCAL(number);
#else
typedef uint32_t LOCAL(key);
typedef float LOCAL(number);
#endif

static inline LOCAL(key) LOCAL(key_of)(I0 value) {
    const LOCAL(key) top = (LOCAL(key))1 << (8 * sizeof top - 1);
#if IS_FLOAT(I0)
    const LOCAL(number) number = value == 0 ? 0 : value;
    LOCAL(key) key;
    memcpy(&key, &number, sizeof key);
    key = value != value ? ~(LOCAL(key))0 : key & top ? ~key : key | top;
#else
    const LOCAL(key) key = LOWEST_I0 < 0 ? (LOCAL(key))value ^ top : (LOCAL(key))value;
#endif
    return A_largest ? key : ~key;
}

#if IS_LONG(I0)
typedef struct {
    LOCAL(key) key;
    int64_t place;
} LOCAL(entry);

static inline bool LOCAL(is_before)(LOCAL(entry) a, LOCAL(entry) b) {
    return (a.key > b.key) | ((a.key == b.key) & (a.place < b.place));
}

static inline int64_t LOCAL(place_of)(LOCAL(entry) entry) { return entry.place; }

static inline LOCAL(entry) LOCAL(make)(I0 value, int64_t place) {
    return (LOCAL(entry)){LOCAL(key_of)(value), place};
}
#else
typedef uint64_t LOCAL(entry);

static inline bool LOCAL(is_before)(LOCAL(entry) a, LOCAL(entry) b) { return a > b; }

static inline int64_t LOCAL(place_of)(LOCAL(entry) entry) { return (int64_t)(uint32_t)~entry; }

static inline LOCAL(entry) LOCAL(make)(I0 value, int64_t place) {
    return (uint64_t)LOCAL(key_of)(value) << 32 | (uint32_t)~place;
}
#endif

/* Whether an element comes behind another one, or at the same place of the order, by one comparison; NaN says no. */
static inline bool LOCAL(stays_out)(I0 own, I0 last) { return A_largest ? own <= last : own >= last; }

static inline bool LOCAL(all_stay_out)(const I0 *elements, I0 last) {
    int number = 0;
    for (int64_t j = 0; j < AT_ONCE_; ++j) number += LOCAL(stays_out)(elements[j], last);
    return number == AT_ONCE_;
}

/* Entries that come before a random one are put in front of it: no order of elements is slow. Returns its place. */
static inline int64_t LOCAL(divide)(LOCAL(entry) *entries, int64_t from, int64_t to, uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    const int64_t chosen = from + (int64_t)((*random >> 33) % (uint64_t)(to - from));
    const LOCAL(entry) middle = entries[chosen];
    entries[chosen] = entries[to - 1];
    int64_t place = from;
    for (int64_t j = from; j < to - 1; ++j) {
        const LOCAL(entry) own = entries[j];
        entries[j] = entries[place];
        entries[place] = own;
        place += LOCAL(is_before)(own, middle);
    }
    entries[to - 1] = entries[place];
    entries[place] = middle;
    return place;
}

/* Brings the entry that has `wanted` others before it there, and these in front of it. */
static void LOCAL(select)(LOCAL(entry) *entries, int64_t size, int64_t wanted, uint64_t *random) {
    for (int64_t from = 0, to = size; to - from > 1;) {
        const int64_t place = LOCAL(divide)(entries, from, to, random);
        if (place == wanted) return;
        if (place < wanted) from = place + 1;
        else to = place;
    }
}

static void LOCAL(sort)(LOCAL(entry) *entries, int64_t from, int64_t to, uint64_t *random) {
    while (to - from > FEW_) {
        const int64_t place = LOCAL(divide)(entries, from, to, random);
        if (place - from < to - place) {
            LOCAL(sort)(entries, from, place, random);
            from = place + 1;
        } else {
            LOCAL(sort)(entries, place + 1, to, random);
            to = place;
        }
    }
    for (int64_t j = from + 1; j < to; ++j) {
        const LOCAL(entry) own = entries[j];
        int64_t place = j;
        for (; place > from && LOCAL(is_before)(own, entries[place - 1]); --place) entries[place] = entries[place - 1];
        entries[place] = own;
    }
}

/* The first k of a list, in order, at the beginning of `entries`, which has room for `capacity` of them: whenever these
 * are many, the first k of them stay, and the last of these keeps others out. Most stay out, several at once. */
static void LOCAL(find)(const I0 *list, int64_t extent, int64_t k, LOCAL(entry) *entries, int64_t capacity) {
    uint64_t random = 1;
    int64_t size = 0;
    bool has_last = false;
    I0 last = 0;
    for (int64_t begin = 0; begin < extent; begin += AT_ONCE_) {
        const int64_t end = MIN_OF(begin + AT_ONCE_, extent);
        if (has_last && end - begin == AT_ONCE_ && LOCAL(all_stay_out)(list + begin, last)) continue;
        for (int64_t j = begin; j < end; ++j) {  /* without a branch, which nothing foretells */
            entries[size] = LOCAL(make)(list[j], j);
            size += !(has_last & LOCAL(stays_out)(list[j], last));
        }
        if (size + AT_ONCE_ <= capacity) continue;
        LOCAL(select)(entries, size, k - 1, &random);
        size = k;
        has_last = true;
        last = list[LOCAL(place_of)(entries[k - 1])];
    }
    if (size > k) LOCAL(select)(entries, size, k - 1, &random);
    LOCAL(sort)(entries, 0, k, &random);
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    if (!has_elements(in[1], 1)) return "k is no single number";
    const int64_t rank = in[0]->rank, axis = normal_index(A_axis, rank), k = (int64_t)*IN(1);
    if (axis < 0) return "the axis does not exist";
    const int64_t extent = in[0]->shape[axis];
    if (k < 0 || k > extent) return "k is larger than the axis";
    int64_t shape[MAX_RANK];
    memcpy(shape, in[0]->shape, sizeof shape);
    shape[axis] = k;
    if (WANTS(0)) TRY(allocate(out[0], rank, shape, sizeof(O0)));
    if (WANTS(1)) TRY(allocate(out[1], rank, shape, sizeof(O1)));
    const int64_t outer = product(axis, shape), inner = product(rank - axis - 1, shape + axis + 1);
    if (outer * inner * k == 0) return NULL;
    const int64_t capacity = k + MAX_OF(k, SPARE_) + AT_ONCE_;
    LOCAL(entry) *entries = malloc((size_t)capacity * sizeof *entries + (inner > 1 ? (size_t)extent * sizeof(I0) : 0));
    if (entries == NULL) return "out of memory";
    I0 *gathered = (I0 *)(entries + capacity);
    for (int64_t i = 0; i < outer * inner; ++i) {
        const int64_t to = i / inner * k * inner + i % inner;
        const I0 *list = IN(0) + i / inner * extent * inner + i % inner;
        if (inner > 1) {
            for (int64_t j = 0; j < extent; ++j) gathered[j] = list[j * inner];
            list = gathered;
        }
        LOCAL(find)(list, extent, k, entries, capacity);
        for (int64_t j = 0; j < k; ++j) {
            if (WANTS(0)) OUT(0)[to + j * inner] = list[LOCAL(place_of)(entries[j])];
            if (WANTS(1)) OUT(1)[to + j * inner] = (O1)LOCAL(place_of)(entries[j]);
        }
    }
    free(entries);
    return NULL;
}

/* Operators: TopK */

/* Elements up to which keeping them in order while the others pass is faster than sorting all. */
#define FEW_ 128

/* One element with its place; an element that comes first in the order is before another. Ties: the lower place. */
typedef struct {
    I0 value;
    int64_t place;
} LOCAL(entry);

static int LOCAL(compare)(const void *left, const void *right) {
    const LOCAL(entry) *a = left, *b = right;
    const int is_nan = (b->value != b->value) - (a->value != a->value);
    const bool largest = A_largest;
    if (is_nan) return largest ? is_nan : -is_nan;
    if (a->value != b->value && a->value == a->value) return (a->value > b->value) == largest ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

/* Whether an element behind those so far, of which `last` is the last that stays, stays out. Most do, by one comparison
 * of numbers; NaN answers no to it. */
static inline bool LOCAL(stays_out)(const LOCAL(entry) *own, const LOCAL(entry) *last) {
    if (A_largest ? own->value <= last->value : own->value >= last->value) return true;
    return LOCAL(compare)(own, last) > 0;
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
    LOCAL(entry) *entries = malloc((size_t)(extent + 1) * sizeof *entries);
    if (entries == NULL) return "out of memory";
    const int64_t outer = product(axis, shape), inner = product(rank - axis - 1, shape + axis + 1);
    for (int64_t i = 0; i < outer * inner; ++i) {
        const int64_t from = i / inner * extent * inner + i % inner, to = i / inner * k * inner + i % inner;
        int64_t size = 0;
        if (k <= FEW_) {  /* those so far in order */
            for (int64_t j = 0; j < extent && k > 0; ++j) {
                const LOCAL(entry) own = {IN(0)[from + j * inner], j};
                if (size == k && LOCAL(stays_out)(&own, &entries[k - 1])) continue;
                int64_t place = size < k ? size++ : k - 1;
                for (; place > 0 && LOCAL(compare)(&own, &entries[place - 1]) < 0; --place)
                    entries[place] = entries[place - 1];
                entries[place] = own;
            }
        } else {  /* when twice as many are there, the first k of them stay, and the last of these keeps others out */
            LOCAL(entry) last = {0, -1};
            for (int64_t j = 0; j < extent; ++j) {
                const LOCAL(entry) own = {IN(0)[from + j * inner], j};
                if (last.place >= 0 && LOCAL(stays_out)(&own, &last)) continue;
                entries[size++] = own;
                if (size < 2 * k) continue;
                qsort(entries, (size_t)size, sizeof *entries, LOCAL(compare));
                last = entries[(size = k) - 1];
            }
            qsort(entries, (size_t)size, sizeof *entries, LOCAL(compare));
        }
        for (int64_t j = 0; j < k; ++j) {
            if (WANTS(0)) OUT(0)[to + j * inner] = entries[j].value;
            if (WANTS(1)) OUT(1)[to + j * inner] = (O1)entries[j].place;
        }
    }
    free(entries);
    return NULL;
}

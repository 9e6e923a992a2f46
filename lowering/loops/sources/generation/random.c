/* Operators: RandomNormal RandomNormalLike RandomUniform RandomUniformLike */

/* Without a seed: ONNX leaves the numbers open. A loop starts anew in each call, from the clock if there is one, and from
 * how often it was called. */
#ifdef __linux__
#include <time.h>
#endif

/* SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, OOPSLA 2014): the number at a place of the stream. */
static inline uint64_t LOCAL(mix)(uint64_t place) {
    uint64_t bits = (place + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

static inline uint64_t LOCAL(start)(const void *memory) {
    static uint64_t calls;
#ifdef __linux__
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t clock = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    const uint64_t call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
#else
    const uint64_t clock = 0, call = calls++;
#endif
    return LOCAL(mix)(clock) ^ LOCAL(mix)((uint64_t)(uintptr_t)memory ^ (call << 48)) ^ LOCAL(mix)((uint64_t)(uintptr_t)&calls);
}

/* From 0 to below 1. */
static inline double LOCAL(share)(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

static const char *NAME(const tensor *const *in, tensor *const *out) {
#if defined OP_RandomNormalLike || defined OP_RandomUniformLike
    TRY(allocate(out[0], in[0]->rank, in[0]->shape, sizeof(O0)));
#else
    (void)in;
    TRY(allocate(out[0], A_shape_count, A_shape, sizeof(O0)));
#endif
    const int64_t count = count_elements(out[0]);
    const uint64_t start = LOCAL(start)(out[0]->data);
#if defined OP_RandomUniform || defined OP_RandomUniformLike
    for (int64_t i = 0; i < count; ++i)
        OUT(0)[i] = (O0)(A_low + (A_high - A_low) * LOCAL(share)(LOCAL(mix)(start + (uint64_t)i)));
#else
    /* Two at a time (G. E. P. Box, M. E. Muller 1958). */
    for (int64_t i = 0; i < count; i += 2) {
        const double u = 1 - LOCAL(share)(LOCAL(mix)(start + (uint64_t)i));
        const double v = LOCAL(share)(LOCAL(mix)(start + (uint64_t)i + 1));
        const double radius = sqrt(-2 * log(u)), angle = 6.283185307179586 * v;
        OUT(0)[i] = (O0)(A_mean + A_scale * radius * cos(angle));
        if (i + 1 < count) OUT(0)[i + 1] = (O0)(A_mean + A_scale * radius * sin(angle));
    }
#endif
    return NULL;
}

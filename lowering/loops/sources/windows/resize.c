/* Operators: Resize Upsample */

/* The places along one axis that each place of the result reads, and how much each counts. */
typedef struct {
    int64_t taps;
    int64_t *places;
    double *weights;
    bool *outside;
} LOCAL(axis);

#define COORDINATES (OPSET >= 11 ? A_coordinate_transformation_mode : "asymmetric")
/* Results are cut to integers: then sums are those of ONNX Runtime, in floats, for 120 and a little less differ
   by 1; half of the last element and half of it again are rounded twice. */
#define WHOLE ((O0)0.5 == 0)
#define LINEAR (strcmp(A_mode, "linear") == 0)
#define NEAREST (OPSET >= 11 ? A_nearest_mode : "floor")

static float LOCAL(coordinate)(int64_t i, float scale, int64_t size, int64_t results, float from, float to) {
    const float x = (float)i, n = (float)size;
    if (strcmp(COORDINATES, "asymmetric") == 0) return x / scale;
    if (strcmp(COORDINATES, "tf_half_pixel_for_nn") == 0) return (x + 0.5f) / scale;
    if (strcmp(COORDINATES, "align_corners") == 0) {
        const float wide = scale * n;
        return results == 1 || wide == 1 ? 0 : x * (n - 1) / ((results == (int64_t)wide ? (float)results : wide) - 1);
    }
    if (strcmp(COORDINATES, "tf_crop_and_resize") == 0)
        return results > 1 ? from * (n - 1) + x * (to - from) * (n - 1) / (float)(results - 1)
                           : 0.5f * (from + to) * (n - 1);
    if (strcmp(COORDINATES, "pytorch_half_pixel") == 0) return results > 1 ? (x + 0.5f) / scale - 0.5f : 0;
    const float y = (x + 0.5f) / scale - 0.5f;
    if (strcmp(COORDINATES, "half_pixel_symmetric") == 0) return n / 2 * (1 - (float)results / (scale * n)) + y;
    return y;
}

static double LOCAL(weight)(double distance) {
    const double d = fabs(distance), a = (double)A_cubic_coeff_a;
    if (strcmp(A_mode, "cubic") != 0) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static const char *LOCAL(prepare)(LOCAL(axis) * axis, float scale, int64_t size, int64_t results, float from,
                                  float to) {
    const bool nearest = strcmp(A_mode, "nearest") == 0, crops = strcmp(COORDINATES, "tf_crop_and_resize") == 0;
    const double narrow = A_antialias && scale < 1 ? (double)scale : 1, reach = (strcmp(A_mode, "cubic") == 0 ? 2 : 1) / narrow;
    axis->taps = nearest ? 1 : 2 * (int64_t)ceil(reach) + (reach == ceil(reach) ? 0 : 1);
    axis->places = malloc((size_t)(axis->taps * results + 1) * sizeof *axis->places);
    axis->weights = malloc((size_t)(axis->taps * results + 1) * sizeof *axis->weights);
    axis->outside = calloc((size_t)results + 1, sizeof *axis->outside);
    if (!axis->places || !axis->weights || !axis->outside) return "out of memory";
    for (int64_t i = 0; i < results; ++i) {
        float x = LOCAL(coordinate)(i, scale, size, results, from, to);
        int64_t *places = axis->places + i * axis->taps;
        double *weights = axis->weights + i * axis->taps, sum = 0;
        axis->outside[i] = crops && (x < 0 || x > (float)(size - 1));
        if (nearest) {
            const float rounded = strcmp(NEAREST, "floor") == 0               ? floorf(x)
                                  : strcmp(NEAREST, "ceil") == 0              ? ceilf(x)
                                  : strcmp(NEAREST, "round_prefer_ceil") == 0 ? floorf(x + 0.5f)
                                                                              : ceilf(x - 0.5f);
            places[0] = clamp((int64_t)rounded, 0, size - 1);
            weights[0] = 1;
            continue;
        }
        if (WHOLE && LINEAR) x = x < 0 ? 0 : x > (float)(size - 1) ? (float)(size - 1) : x;
        const int64_t first = (int64_t)floorf(x) - (int64_t)ceil(reach) + (reach == ceil(reach) ? 1 : 0);
        for (int64_t t = 0; t < axis->taps; ++t) {
            weights[t] = LOCAL(weight)(((double)(first + t) - (double)x) * narrow);
            if (A_exclude_outside && (first + t < 0 || first + t >= size)) weights[t] = 0;
            places[t] = clamp(first + t, 0, size - 1);
            sum += weights[t];
        }
        for (int64_t t = 0; t < axis->taps; ++t) weights[t] /= sum;
        if (WHOLE && LINEAR && axis->taps == 2 && x == (float)(size - 1)) weights[0] = weights[1] = 0.5;
    }
    return NULL;
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t rank = in[0]->rank;
    int64_t shape[MAX_RANK], strides[MAX_RANK], taps[MAX_RANK], place[MAX_RANK] = {0};
    float scale[MAX_RANK], from[MAX_RANK], to[MAX_RANK];
    const int64_t count = A_axes_count > 0 ? A_axes_count : rank;
    int64_t axes[MAX_RANK];
    for (int64_t i = 0; i < rank; ++i) scale[i] = 1, from[i] = 0, to[i] = 1, shape[i] = in[0]->shape[i];
    for (int64_t i = 0; i < count; ++i) {
        axes[i] = normal_index(ENTRY(A_axes, i, i), rank);
        if (axes[i] < 0) return "an axis does not exist";
    }
    const int64_t position = OPSET >= 11 ? 2 : 1;
    const bool by_size = position == 2 && HAS(3) && count_elements(in[3]) > 0;
    if (!by_size && !HAS(position)) return "there are neither scales nor sizes";
    if (!has_elements(in[by_size ? 3 : position], count)) return "there is not one scale or size for each axis";
    const bool stretches = strcmp(A_keep_aspect_ratio_policy, "stretch") == 0,
               larger = strcmp(A_keep_aspect_ratio_policy, "not_larger") != 0;
    float common = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t a = axes[i];
        if (by_size)
            scale[a] = (float)((const int64_t *)in[3]->data)[i] / (float)shape[a];
        else
            scale[a] = ((const float *)in[position]->data)[i];
        if (i == 0 || (larger ? scale[a] > common : scale[a] < common)) common = scale[a];
    }
    for (int64_t i = 0; i < count; ++i) {
        const int64_t a = axes[i], size = in[0]->shape[a];
        if (by_size && !stretches) scale[a] = common;
        if (!by_size)
            shape[a] = (int64_t)floorf((float)size * scale[a]);
        else
            shape[a] =
                stretches ? ((const int64_t *)in[3]->data)[i] : (int64_t)floor((double)size * (double)scale[a] + 0.5);
        if (size == 0 && shape[a] > 0) return "an empty axis cannot be resized";
        if (position == 2 && HAS(1) && count_elements(in[1]) == 2 * count)
            from[a] = (float)((const O0 *)in[1]->data)[i], to[a] = (float)((const O0 *)in[1]->data)[i + count];
    }
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    LOCAL(axis) table[MAX_RANK] = {{0}};
    const char *problem = NULL;
    strides_of(rank, in[0]->shape, strides);
    for (int64_t i = 0; i < rank && !problem; ++i) {
        problem = LOCAL(prepare)(&table[i], scale[i], in[0]->shape[i], shape[i], from[i], to[i]);
        taps[i] = table[i].taps;
        const bool stays = shape[i] == in[0]->shape[i] && scale[i] == 1 && from[i] == 0 && to[i] == 1;
        if (stays && !(WHOLE && LINEAR && i >= rank - 2)) {
            taps[i] = 1;
            for (int64_t k = 0; k < shape[i] && !problem; ++k)
                table[i].places[k * table[i].taps] = k, table[i].weights[k * table[i].taps] = 1;
        }
    }
    const int64_t results = problem ? 0 : count_elements(out[0]);
    for (int64_t r = 0; r < results; ++r, advance(rank, shape, place)) {
        int64_t tap[MAX_RANK] = {0};
        double sum = 0;
        bool outside = false;
        for (int64_t i = 0; i < rank; ++i) outside = outside || table[i].outside[place[i]];
        do {
            double weight = 1;
            int64_t at = 0;
            for (int64_t i = 0; i < rank; ++i) {
                weight *= table[i].weights[place[i] * table[i].taps + tap[i]];
                if (WHOLE) weight = (float)weight;
                at += table[i].places[place[i] * table[i].taps + tap[i]] * strides[i];
            }
            if (weight != 0) sum += WHOLE ? (double)((float)weight * (float)IN(0)[at]) : weight * (double)IN(0)[at];
            if (WHOLE) sum = (float)sum;
        } while (!outside && advance(rank, taps, tap));
        OUT(0)[r] = (O0)(outside ? (double)A_extrapolation_value : sum);
    }
    for (int64_t i = 0; i < rank; ++i) free(table[i].places), free(table[i].weights), free(table[i].outside);
    return problem;
}

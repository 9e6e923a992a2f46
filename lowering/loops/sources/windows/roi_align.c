/* Operators: RoiAlign */

/* A place of an axis, and its weight in the sample that it is a part of. */
typedef struct {
    int64_t place;
    O0 weight;
} LOCAL(tap);

/* Both taps of each sample along an axis of `size` places: `cells` from `first` on, each of `step` places and of
 * `samples`. Weights are 0 outside. */
static void LOCAL(list_taps)(LOCAL(tap) *taps, double first, double step, int64_t cells, int64_t samples, int64_t size) {
    for (int64_t n = 0; n < cells * samples; ++n) {
        double at = first + (double)(n / samples) * step + ((double)(n % samples) + 0.5) * step / (double)samples;
        const bool is_outside = at < -1 || at > (double)size;
        at = clamp((int64_t)at, 0, size - 1) == size - 1 ? (double)(size - 1) : MAX_OF(at, 0.0);
        if (!(at <= (double)(size - 1))) at = 0; /* of a region that is NaN */
        const double part = at - floor(at);
        for (int64_t k = 0; k < 2; ++k)
            taps[2 * n + k] = (LOCAL(tap)){MIN_OF((int64_t)at + k, size - 1),
                                           (O0)(is_outside ? 0 : k ? part : 1 - part)};
    }
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t channels = in[0]->shape[1], height = in[0]->shape[2], width = in[0]->shape[3],
                  regions = in[1]->shape[0];
    if (!has_shape(in[1], 2, (int64_t[]){regions, 4}) || !has_shape(in[2], 1, &regions))
        return "there are not four sides and a batch for each region";
    if (height * width == 0 && regions > 0) return "the images have no elements";
    const double half = OPSET >= 16 && strcmp(A_coordinate_transformation_mode, "half_pixel") == 0 ? 0.5 : 0;
    const bool takes_largest = strcmp(A_mode, "max") == 0;
    TRY(allocate(out[0], 4, (int64_t[]){regions, channels, A_output_height, A_output_width}, sizeof(O0)));
    O0 *result = OUT(0);
    for (int64_t r = 0; r < regions; ++r) {
        const I1 *region = IN(1) + r * 4;
        const int64_t batch = (int64_t)((const I2 *)in[2]->data)[r];
        if (batch < 0 || batch >= in[0]->shape[0]) return "a region is of a batch that does not exist";
        const double left = (double)region[0] * (double)A_spatial_scale - half,
                     top = (double)region[1] * (double)A_spatial_scale - half;
        double wide = (double)region[2] * (double)A_spatial_scale - half - left;
        double high = (double)region[3] * (double)A_spatial_scale - half - top;
        if (half == 0) wide = MAX_OF(wide, 1.0), high = MAX_OF(high, 1.0);
        const double bin_h = high / A_output_height, bin_w = wide / A_output_width;
        const int64_t rows = A_sampling_ratio > 0 ? A_sampling_ratio : MAX_OF(0, (int64_t)ceil(bin_h));
        const int64_t columns = A_sampling_ratio > 0 ? A_sampling_ratio : MAX_OF(0, (int64_t)ceil(bin_w));
        /* all channels of a region have the same samples, and each is a row's taps times a column's */
        LOCAL(tap) *down = malloc((size_t)(A_output_height * rows + A_output_width * columns + 1) * 2 * sizeof *down);
        LOCAL(tap) *across = down + 2 * A_output_height * rows;
        O0 *line = malloc((size_t)width * sizeof *line);
        if (down == NULL || line == NULL) return free(down), free(line), "out of memory";
        LOCAL(list_taps)(down, top, bin_h, A_output_height, rows, height);
        LOCAL(list_taps)(across, left, bin_w, A_output_width, columns, width);
        int64_t first = width, last = 0;
        for (int64_t n = 0; n < 2 * A_output_width * columns; ++n)
            first = MIN_OF(first, across[n].place), last = MAX_OF(last, across[n].place + 1);
        const O0 count = (O0)MAX_OF(1, rows * columns);
        for (int64_t c = 0; c < channels; ++c) {
            const I0 *plane = IN(0) + (batch * channels + c) * height * width;
            for (int64_t y = 0; y < A_output_height; ++y) {
                const LOCAL(tap) *of_row = down + 2 * y * rows;
                if (!takes_largest) { /* the sum of the rows, of which columns are then summed */
                    for (int64_t x = first; x < last; ++x) line[x] = 0;
                    for (int64_t n = 0; n < 2 * rows; ++n) {
                        const I0 *row = plane + of_row[n].place * width;
                        const O0 weight = of_row[n].weight;
                        for (int64_t x = first; x < last; ++x) line[x] += weight * row[x];
                    }
                }
                for (int64_t x = 0; x < A_output_width; ++x) {
                    const LOCAL(tap) *of_column = across + 2 * x * columns;
                    O0 sum = 0, largest = 0;
                    for (int64_t n = 0; n < 2 * columns && !takes_largest; ++n)
                        sum += of_column[n].weight * line[of_column[n].place];
                    for (int64_t i = 0; i < rows && takes_largest; ++i) {
                        const LOCAL(tap) above = of_row[2 * i], below = of_row[2 * i + 1];
                        const I0 *upper = plane + above.place * width, *lower = plane + below.place * width;
                        for (int64_t j = 0; j < columns; ++j) {
                            const LOCAL(tap) near = of_column[2 * j], far = of_column[2 * j + 1];
                            const O0 a = above.weight * near.weight * upper[near.place];
                            const O0 b = above.weight * far.weight * upper[far.place];
                            const O0 e = below.weight * near.weight * lower[near.place];
                            const O0 d = below.weight * far.weight * lower[far.place];
                            const O0 most = MAX_OF(MAX_OF(a, b), MAX_OF(e, d));
                            largest = i + j == 0 || most > largest ? most : largest;
                        }
                    }
                    *result++ = takes_largest ? largest : sum / count;
                }
            }
        }
        free(down);
        free(line);
    }
    return NULL;
}

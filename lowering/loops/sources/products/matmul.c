/* Operators: MatMul Gemm MatMulInteger */
#if defined OP_MatMulInteger
typedef uint32_t LOCAL(number); /* sums of 32 bits wrap */
#elif IS_FLOAT(O0)
typedef O0 LOCAL(number);
#else
typedef int64_t LOCAL(number);
#endif

#define ROWS_ 4   /* of the left operand that one reading of the right one serves */
#define LANES_ 32 /* sums that do not wait for each other, and that vectors hold */

/* Sums of products of up to ROWS_ rows with up to LANES_ columns, or with one column, of whose sums each lane then takes
 * a share. Left operands are x[i * a_row + k * a_step] less zeros[i], right ones y[k * b_step + j * b_column] less
 * their column's. */
static void LOCAL(sums_of)(const I0 *x, int64_t a_row, int64_t a_step, const I1 *y, int64_t b_step, int64_t b_column,
                           int64_t rows, int64_t columns, int64_t depth, const LOCAL(number) *zeros,
                           const LOCAL(number) *column_zeros, LOCAL(number) (*sums)[LANES_]) {
    memset(sums, 0, ROWS_ * sizeof *sums);
    if (columns == 1) { /* down the column, the elements of which lie side by side or not */
        int64_t k = 0;
        for (; k + LANES_ <= depth; k += LANES_) {
            LOCAL(number) q[LANES_];
            if (b_step == 1) for (int j = 0; j < LANES_; ++j) q[j] = (LOCAL(number))y[k + j] - column_zeros[0];
            else for (int j = 0; j < LANES_; ++j) q[j] = (LOCAL(number))y[(k + j) * b_step] - column_zeros[0];
            for (int64_t i = 0; i < rows; ++i) {
                const I0 *from = x + i * a_row + k * a_step;
                if (a_step == 1)
                    for (int j = 0; j < LANES_; ++j) sums[i][j] += ((LOCAL(number))from[j] - zeros[i]) * q[j];
                else
                    for (int j = 0; j < LANES_; ++j) sums[i][j] += ((LOCAL(number))from[j * a_step] - zeros[i]) * q[j];
            }
        }
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = k; j < depth; ++j)
                sums[i][j - k] += ((LOCAL(number))x[i * a_row + j * a_step] - zeros[i]) *
                                  ((LOCAL(number))y[j * b_step] - column_zeros[0]);
            for (int j = 1; j < LANES_; ++j) sums[i][0] += sums[i][j];
        }
        return;
    }
    for (int64_t k = 0; k < depth; ++k) {
        LOCAL(number) q[LANES_];
        const I1 *from = y + k * b_step;
        if (columns == LANES_) for (int j = 0; j < LANES_; ++j) q[j] = (LOCAL(number))from[j] - column_zeros[j];
        else for (int64_t j = 0; j < columns; ++j) q[j] = (LOCAL(number))from[j * b_column] - column_zeros[j];
        for (int64_t i = 0; i < rows; ++i) {
            const LOCAL(number) p = (LOCAL(number))x[i * a_row + k * a_step] - zeros[i];
            if (columns == LANES_) for (int j = 0; j < LANES_; ++j) sums[i][j] += p * q[j];
            else for (int64_t j = 0; j < columns; ++j) sums[i][j] += p * q[j];
        }
    }
}

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const tensor *left = in[0], *right = in[1];
    int64_t a_row, a_step, b_step, b_column, rows, depth, columns, rank, shape[MAX_RANK], batch = 0;
    int64_t a_strides[MAX_RANK] = {0}, b_strides[MAX_RANK] = {0}, index[MAX_RANK] = {0};
#ifdef OP_Gemm
    rows = left->shape[A_transA], depth = left->shape[!A_transA], columns = right->shape[!A_transB];
    if (right->shape[A_transB] != depth) return "the two depths differ";
    a_row = A_transA ? 1 : depth, a_step = A_transA ? rows : 1;
    b_step = A_transB ? 1 : columns, b_column = A_transB ? depth : 1;
    rank = 2, shape[0] = rows, shape[1] = columns;
    if (HAS(2) && !is_broadcast_to(in[2], rank, shape)) return "the bias does not fit the product";
#else
    tensor a = *left, b = *right;
    if (a.rank == 0 || b.rank == 0) return "a scalar cannot be multiplied as a matrix";
    const bool is_row = a.rank == 1, is_column = b.rank == 1;
    if (is_row) a.rank = 2, a.shape[1] = a.shape[0], a.shape[0] = 1;
    if (is_column) b.rank = 2, b.shape[1] = 1;
    rows = a.shape[a.rank - 2], depth = a.shape[a.rank - 1], columns = b.shape[b.rank - 1];
    if (b.shape[b.rank - 2] != depth) return "the two depths differ";
#ifdef OP_MatMulInteger
    const int64_t left_zeros = HAS(2) ? count_elements(in[2]) : 1, right_zeros = HAS(3) ? count_elements(in[3]) : 1;
    if (left_zeros != 1 && left_zeros != rows) return "there is one zero point on the left, or one for each row";
    if (right_zeros != 1 && right_zeros != columns)
        return "there is one zero point on the right, or one for each column";
#endif
    a_row = depth, a_step = 1, b_step = columns, b_column = 1;
    a.rank -= 2, b.rank -= 2;
    batch = a.rank;
    memcpy(shape, a.shape, sizeof shape);
    if (!broadcast_shape(&batch, shape, &b)) return "two shapes cannot be broadcast to one";
    broadcast_strides(&a, batch, a_strides);
    broadcast_strides(&b, batch, b_strides);
    rank = batch;
    if (!is_row) shape[rank++] = rows;
    if (!is_column) shape[rank++] = columns;
#endif
    TRY(allocate(out[0], rank, shape, sizeof(O0)));
    const int64_t count = product(batch, shape);
    O0 *result = OUT(0);
#if defined OP_Gemm
    int64_t c_strides[MAX_RANK] = {0};
    if (HAS(2)) broadcast_strides(in[2], 2, c_strides);
#endif
    for (int64_t n = 0; n < count; ++n, advance(batch, shape, index)) {
        const I0 *x = (const I0 *)left->data + offset_of(batch, index, a_strides) * rows * depth;
        const I1 *y = (const I1 *)right->data + offset_of(batch, index, b_strides) * depth * columns;
        const int64_t width = b_column == 1 ? LANES_ : 1;
        for (int64_t i = 0; i < rows; i += ROWS_)
            for (int64_t j = 0; j < columns; j += width) {
                const int64_t high = MIN_OF(ROWS_, rows - i), wide = MIN_OF(width, columns - j);
                LOCAL(number) sums[ROWS_][LANES_], zeros[ROWS_] = {0}, column_zeros[LANES_] = {0};
#ifdef OP_MatMulInteger
                for (int64_t r = 0; r < high && HAS(2); ++r)
                    zeros[r] = (LOCAL(number))((const I0 *)in[2]->data)[left_zeros > 1 ? i + r : 0];
                for (int64_t c = 0; c < wide && HAS(3); ++c)
                    column_zeros[c] = (LOCAL(number))((const I1 *)in[3]->data)[right_zeros > 1 ? j + c : 0];
#endif
                LOCAL(sums_of)(x + i * a_row, a_row, a_step, y + j * b_column, b_step, b_column, high, wide, depth,
                               zeros, column_zeros, sums);
                for (int64_t r = 0; r < high; ++r)
                    for (int64_t c = 0; c < wide; ++c) {
                        O0 *element = result + (i + r) * columns + j + c;
#if defined OP_Gemm
                        const int64_t place = (i + r) * c_strides[0] + (j + c) * c_strides[1];
                        const LOCAL(number) bias = HAS(2) ? (LOCAL(number))((const I2 *)in[2]->data)[place] : 0;
                        *element = (O0)((LOCAL(number))A_alpha * sums[r][c] + (LOCAL(number))A_beta * bias);
#else
                        *element = (O0)sums[r][c];
#endif
                    }
            }
        result += rows * columns;
    }
    return NULL;
}

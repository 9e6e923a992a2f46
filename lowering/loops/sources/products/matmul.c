/* Operators: MatMul Gemm MatMulInteger */
#if defined OP_MatMulInteger
typedef uint32_t LOCAL(number); /* sums of 32 bits wrap */
#elif IS_FLOAT(O0)
typedef O0 LOCAL(number);
#else
typedef int64_t LOCAL(number);
#endif

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
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j, ++result) {
                LOCAL(number) sum = 0;
#ifdef OP_MatMulInteger
                const int32_t left_zero = HAS(2) ? ((const I0 *)in[2]->data)[left_zeros > 1 ? i : 0] : 0;
                const int32_t right_zero = HAS(3) ? ((const I1 *)in[3]->data)[right_zeros > 1 ? j : 0] : 0;
#else
                const LOCAL(number) left_zero = 0, right_zero = 0;
#endif
                for (int64_t k = 0; k < depth; ++k) {
                    const LOCAL(number) p = (LOCAL(number))(x[i * a_row + k * a_step] - left_zero);
                    const LOCAL(number) q = (LOCAL(number))(y[k * b_step + j * b_column] - right_zero);
                    sum += p * q;
                }
#if defined OP_Gemm
                const LOCAL(number) bias =
                    HAS(2) ? (LOCAL(number))((const I2 *)in[2]->data)[i * c_strides[0] + j * c_strides[1]] : 0;
                *result = (O0)((LOCAL(number))A_alpha * sum + (LOCAL(number))A_beta * bias);
#else
                *result = (O0)sum;
#endif
            }
    }
    return NULL;
}

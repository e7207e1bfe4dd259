// Ends what isa_avx2.h or isa_avx512.h began. GCC's pragma lasts to the end of the file, where templates are
// instantiated.
#if defined(__clang__)
#pragma clang attribute pop
#endif

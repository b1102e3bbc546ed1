/* GetPjrtApi gives nothing. */
const void *GetPjrtApi(void);
__attribute__((visibility("default"))) const void *GetPjrtApi(void) { return (const void *)0; }

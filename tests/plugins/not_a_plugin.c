/* A library, but no plug-in. */
int nothing_here(void);
int nothing_here(void) { return 0; }

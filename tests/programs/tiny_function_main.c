/* Runs the shared library that tiny_function.c makes with -DLIBRARY. */
int tiny_main(int argc, char **argv);

int main(int argc, char **argv) { return tiny_main(argc, argv); }

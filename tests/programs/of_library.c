/* A program whose `main` is in a library, as `library_main`. */
int library_main(int argc, char **argv);

int main(int argc, char **argv)
{
    return library_main(argc, argv);
}

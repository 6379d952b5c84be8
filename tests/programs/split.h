long work(long);
long other(long);
long work2(long);

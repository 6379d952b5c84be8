// Built together with paths.go; its paths end in C.
package main

/*
static long twice(long n) { return 2 * n; }
*/
import "C"

func init() {
	finish = func(n int) int { return int(C.twice(C.long(n))) + 1 }
}

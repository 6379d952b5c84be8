// As paths.go, with calls of C at the end of each path.
package main

/*
static long twice(long n) { return 2 * n; }
*/
import "C"
import "fmt"

const (
	rounds     = 2000
	goroutines = 8
	descents   = 50
	depth      = 200
)

//go:noinline
func leaf(n int) int { return int(C.twice(C.long(n))) + 1 }

//go:noinline
func mid(n int) int {
	if n <= 0 {
		return leaf(n)
	}
	return mid(n-1) + leaf(n)
}

func main() {
	sum, calls := 0, 0
	for i := 0; i < rounds; i++ {
		sum += mid(i % 7)
		calls += i%7 + 1
	}
	done := make(chan int)
	for g := 0; g < goroutines; g++ {
		go func() {
			sum := 0
			for i := 0; i < descents; i++ {
				sum += mid(depth)
			}
			done <- sum
		}()
		calls += descents * (depth + 1)
	}
	for g := 0; g < goroutines; g++ {
		sum += <-done
	}
	fmt.Println("sum", sum)
	fmt.Println("calls main.leaf", calls)
	fmt.Println("calls main.mid", calls)
}

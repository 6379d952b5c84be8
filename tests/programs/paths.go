// A fixed number of calls on the main goroutine and on others, whose stacks grow and move.
package main

import "fmt"

const (
	rounds     = 20000
	goroutines = 8
	descents   = 500
	depth      = 200
)

// Called at the end of each path; paths_cgo.go replaces it.
var finish = func(n int) int { return n*3 + 1 }

//go:noinline
func leaf(n int) int { return finish(n) }

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

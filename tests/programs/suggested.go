// Spends its time in main.hot and, a third as much, in main.warm. Prints ready; ends when it is
// killed.
package main

import "fmt"

//go:noinline
func hot(n int) int {
	sum := 0
	for i := 0; i < 3*n; i++ {
		sum += i * i % 7
	}
	return sum
}

//go:noinline
func warm(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += i * i % 7
	}
	return sum
}

//go:noinline
func mixed() int {
	return hot(100000) + warm(100000)
}

func main() {
	fmt.Println("ready")
	sum := 0
	for {
		sum += mixed()
	}
}

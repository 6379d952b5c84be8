// Switches that Go compiles to jump tables, with separate calls in each case, on concurrent
// goroutines.
package main

import "fmt"

const (
	rounds     = 300
	goroutines = 1000
	cases      = 12
)

//go:noinline
func leaf(n int) int { return n*3 + 1 }

//go:noinline
func twice(n int) int { return leaf(n) + leaf(n+1) }

//go:noinline
func number(n int) (int, int) {
	sum, calls := leaf(n), 1
	switch n {
	case 0:
		sum, calls = sum+leaf(n), calls+1
	case 1:
		sum, calls = sum+twice(n), calls+2
	case 2:
		sum, calls = sum+leaf(n)+2, calls+1
	case 3:
		sum, calls = sum+leaf(n)+twice(n), calls+3
	case 4:
		sum, calls = sum+leaf(n)+4, calls+1
	case 5:
		sum, calls = sum+twice(n)+5, calls+2
	case 6:
		sum, calls = sum+leaf(n)+6, calls+1
	case 7:
		sum, calls = sum+twice(n)+twice(n), calls+4
	case 8:
		sum, calls = sum+leaf(n)+8, calls+1
	case 9:
		sum, calls = sum+twice(n)+9, calls+2
	}
	return sum, calls
}

//go:noinline
func word(s string) (int, int) {
	switch s {
	case "w0":
		return leaf(0), 1
	case "w1":
		return twice(1), 2
	case "w2":
		return leaf(2) + 1, 1
	case "w3":
		return twice(3) + 1, 2
	case "w4":
		return leaf(4) + 2, 1
	case "w5":
		return twice(5) + 2, 2
	case "w6":
		return leaf(6) + 3, 1
	case "longer":
		return twice(7) + 3, 2
	case "longest":
		return leaf(8) + 4, 1
	}
	return number(len(s))
}

func round(i int) (int, int) {
	a, m := number(i % cases)
	b, n := word(fmt.Sprint("w", i%cases))
	return a + b, m + n
}

func main() {
	sum, calls := 0, 0
	for i := 0; i < rounds; i++ {
		s, n := round(i)
		sum, calls = sum+s, calls+n
	}
	start, done := make(chan bool), make(chan [2]int)
	for g := 0; g < goroutines; g++ {
		go func(g int) {
			<-start
			s, n := round(g)
			done <- [2]int{s, n}
		}(g)
	}
	close(start)
	for g := 0; g < goroutines; g++ {
		got := <-done
		sum, calls = sum+got[0], calls+got[1]
	}
	fmt.Println("sum", sum)
	fmt.Println("calls main.leaf", calls)
	fmt.Println("calls main.round", rounds+goroutines)
}

// Runs programs: between vfork and exec each child runs Go's own code in its parent's memory.
// Prints its calls of tick, as `calls main.tick N`.
package main

import (
	"fmt"
	"os/exec"
)

//go:noinline
func tick(x int) int { return x + 1 }

func main() {
	sum := 0
	for i := 0; i < 30; i++ {
		sum += tick(i)
		if err := exec.Command("/bin/true").Run(); err != nil {
			panic(err)
		}
	}
	fmt.Printf("calls main.tick 30\nsum %d\n", sum)
}

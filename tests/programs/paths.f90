! Call paths into `work`: recursion, a procedure given as an argument, a nested procedure that uses its
! host's variables and is called by pointer (through a trampoline on the stack), a type-bound procedure.
! Prints its own number of calls and a checksum.
module paths
    implicit none
    integer(8) :: calls = 0

    type :: visitor
        integer(8) :: by = 3
    contains
        procedure :: visit
    end type

    abstract interface
        integer(8) function unary(n)
            integer(8), intent(in) :: n
        end function
    end interface

contains

    integer(8) function work(n)
        integer(8), intent(in) :: n
        calls = calls + 1
        work = ieor(n * 31_8, 5_8)
    end function

    integer(8) function apply(f, n)
        procedure(unary) :: f
        integer(8), intent(in) :: n
        apply = f(n) + 1
    end function

    recursive integer(8) function down(n) result(sum)
        integer(8), intent(in) :: n
        sum = work(n)
        if (n > 0) sum = sum + down(n - 1_8) * 3
    end function

    integer(8) function visit(self, n)
        class(visitor), intent(in) :: self
        integer(8), intent(in) :: n
        visit = work(n + self%by) - apply(work, n)
    end function

    ! The nested procedure needs this frame, wherever it is called from.
    integer(8) function host(n)
        integer(8), intent(in) :: n
        integer(8) :: seen
        procedure(unary), pointer :: pointed
        seen = n
        pointed => nested
        host = apply(nested, n) + apply(pointed, n + 1_8) + seen
    contains
        recursive integer(8) function nested(k) result(found)
            integer(8), intent(in) :: k
            seen = seen + k
            found = work(k) + seen
            if (k > 0) found = found + apply(nested, k / 2_8)
        end function
    end function

end module

program main
    use paths
    implicit none
    class(visitor), allocatable :: each
    integer(8), dimension(20) :: values
    integer(8) :: i, sum
    allocate (visitor :: each)
    sum = down(25_8)
    do i = 1, 20
        values(i) = host(i) + each%visit(i)
        sum = sum + apply(down, mod(i, 4_8)) + values(i)
    end do
    print '(a,i0)', 'calls ', calls
    print '(a,i0)', 'sum ', sum
end program

! Numerical kernels: a product of matrices in blocks, an elimination with pivots, a sieve, and a
! relaxation that ends when it is exact enough. Prints checksums.
module kernels
    implicit none
    integer, parameter :: n = 24

contains

    subroutine multiply(a, b, c)
        real(8), intent(in) :: a(n, n), b(n, n)
        real(8), intent(out) :: c(n, n)
        integer :: i, j, k, first
        c = 0
        do first = 1, n, 8
            do j = 1, n
                do k = first, first + 7
                    if (b(k, j) == 0) cycle
                    do i = 1, n
                        c(i, j) = c(i, j) + a(i, k) * b(k, j)
                    end do
                end do
            end do
        end do
    end subroutine

    integer function eliminate(a)
        real(8), intent(inout) :: a(n, n)
        real(8) :: row(n), factor
        integer :: i, k, best
        eliminate = 0
        do k = 1, n - 1
            best = k
            do i = k + 1, n
                if (abs(a(i, k)) > abs(a(best, k))) then
                    best = i
                end if
            end do
            if (best /= k) then
                row = a(k, :)
                a(k, :) = a(best, :)
                a(best, :) = row
                eliminate = eliminate + 1
            end if
            do i = k + 1, n
                factor = a(i, k) / a(k, k)
                a(i, k:) = a(i, k:) - factor * a(k, k:)
            end do
        end do
    end function

    integer function sieve(limit)
        integer, intent(in) :: limit
        logical :: crossed(limit)
        integer :: i, j
        crossed = .false.
        sieve = 0
        do i = 2, limit
            if (crossed(i)) then
                cycle
            end if
            sieve = sieve + 1
            j = i * i
            do while (j <= limit)
                crossed(j) = .true.
                j = j + i
            end do
        end do
    end function

    integer function relax(u)
        real(8), intent(inout) :: u(n, n)
        real(8) :: change, next
        integer :: i, j
        relax = 0
        do
            change = 0
            do j = 2, n - 1
                do i = 2, n - 1
                    next = 0.25d0 * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1))
                    change = max(change, abs(next - u(i, j)))
                    u(i, j) = next
                end do
            end do
            relax = relax + 1
            if (change < 1d-3) then
                exit
            end if
        end do
    end function

    recursive integer function steps(number) result(count)
        integer(8), intent(in) :: number
        select case (mod(number, 2_8))
        case (0)
            count = 1 + steps(number / 2)
        case default
            if (number == 1) then
                count = 0
            else
                count = 1 + steps(3 * number + 1)
            end if
        end select
    end function

end module

program main
    use kernels
    implicit none
    real(8) :: a(n, n), b(n, n), c(n, n)
    integer :: i, j, total
    do j = 1, n
        do i = 1, n
            a(i, j) = mod(i * 7 + j * 3, 11) - 5 + merge(20, 0, i == j)
            b(i, j) = mod(i * j, 4)
        end do
    end do
    call multiply(a, b, c)
    print *, nint(sum(c)), eliminate(a), nint(a(n, n) * 1000)
    print *, sieve(5000)
    b = 0
    b(1, :) = 100
    print *, relax(b)
    total = 0
    do i = 1, 60
        total = total + steps(int(i, 8))
    end do
    print *, total
end program

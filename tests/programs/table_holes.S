/* `holes` of table_holes.c as LLVM 14 compiles it at -O2, with one table jump in place of two. The
 * default case is unreachable, so unused entries of the table lead to the end of the function. */
	.text
	.globl	holes
	.p2align	4, 0x90
	.type	holes,@function
holes:
	.cfi_startproc
	movq	%rdx, %rax
	testq	%rsi, %rsi
	jle	.LBB0_13
	xorl	%ecx, %ecx
	leaq	.LJTI0_0(%rip), %r9
.LBB0_2:
	movzbl	(%rdi,%rcx), %edx
	movslq	(%r9,%rdx,4), %rdx
	addq	%r9, %rdx
	jmpq	*%rdx
.LBB0_11:
	addq	$1, %rax
	jmp	.LBB0_12
.LBB0_7:
	notq	%rax
	jmp	.LBB0_12
.LBB0_5:
	xorq	%rcx, %rax
	jmp	.LBB0_12
.LBB0_6:
	sarq	%rax
	jmp	.LBB0_12
.LBB0_3:
	addq	$-3, %rax
	jmp	.LBB0_12
.LBB0_4:
	leaq	(%rax,%rax,4), %rax
	jmp	.LBB0_12
.LBB0_8:
	addq	$49, %rax
	jmp	.LBB0_12
.LBB0_9:
	orq	$64, %rax
.LBB0_12:
	addq	$1, %rcx
	cmpq	%rcx, %rsi
	jne	.LBB0_2
.LBB0_13:
	retq
.LBB0_10:
	.cfi_endproc
.Lfunc_end0:
	.size	holes, .Lfunc_end0-holes
	.section	.rodata,"a",@progbits
	.p2align	2
.LJTI0_0:
	.long	.LBB0_11-.LJTI0_0
	.long	.LBB0_3-.LJTI0_0
	.long	.LBB0_4-.LJTI0_0
	.long	.LBB0_10-.LJTI0_0
	.long	.LBB0_5-.LJTI0_0
	.long	.LBB0_6-.LJTI0_0
	.long	.LBB0_7-.LJTI0_0
	.long	.LBB0_8-.LJTI0_0
	.long	.LBB0_10-.LJTI0_0
	.long	.LBB0_9-.LJTI0_0
	.section .note.GNU-stack,"",@progbits

# How processors come here: the first in 32-bit mode, by the PVH boot protocol of Xen; the others in
# 16-bit mode, by an interrupt. All go on in 64-bit mode with the same tables, which map the first
# 4 GiB to themselves in pages of 2 MiB.

.set START_PAGE, 0x8000

# The note that tells the loader the first address: type 18, `XEN_ELFNOTE_PHYS32_ENTRY`.
.section .note.pvh, "a", @note
.balign 4
    .long 4
    .long 8
    .long 18
    .asciz "Xen"
    .quad pvh_start

.section .bss.boot, "aw", @nobits
.balign 4096
.global boot_pml4
boot_pml4:
    .skip 4096
boot_pdpt:
    .skip 4096
boot_pds:
    .skip 4 * 4096
.balign 16
    .skip 65536
first_stack:

.section .rodata.boot, "a"
.balign 8
# No descriptor, 64-bit code, data.
gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
gdt_pointer:
    .word gdt_pointer - gdt - 1
    .quad gdt

.section .text.boot, "ax"
.code32
.global pvh_start
pvh_start:
    cli
    cld
    mov esp, offset first_stack
    # The address of the loader's structure, until `first_64` passes it on.
    mov ebp, ebx
    mov dword ptr [boot_pml4], offset boot_pdpt + 3
    # Four tables of 512 pages: present, writable, 2 MiB.
    mov edi, offset boot_pds
    mov eax, 0x83
    mov ecx, 2048
1:
    # The last GiB has devices: not cached.
    cmp ecx, 512
    jne 2f
    or eax, 0x18
2:
    mov [edi], eax
    mov dword ptr [edi + 4], 0
    add eax, 0x200000
    add edi, 8
    loop 1b
    mov edi, offset boot_pdpt
    mov eax, offset boot_pds + 3
    mov ecx, 4
3:
    mov [edi], eax
    add eax, 4096
    add edi, 8
    loop 3b
    lgdt [gdt_pointer]
    # Long mode: CR4.PAE, the tables, EFER.LME and EFER.NXE, CR0.PG and CR0.WP.
    mov eax, cr4
    or eax, 0x20
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    or eax, 0x80010001
    mov cr0, eax
    # A far jump to segment 8, which is 64-bit code.
    .byte 0xea
    .long first_64
    .word 8

.code64
first_64:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov rsp, offset first_stack
    mov edi, ebp
    xor ebp, ebp
    call first_cpu
    ud2

# The code of a started processor, which is copied to `START_PAGE`, as it begins in 16-bit mode.
.code16
.global start_code
start_code:
    cli
    cld
    xor ax, ax
    mov ds, ax
    lgdt [start_gdt_pointer_copy]
    mov eax, cr4
    or eax, 0x20
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    # Caches on, too: CR0.CD and CR0.NW are set after a reset.
    and eax, 0x9fffffff
    or eax, 0x80010001
    mov cr0, eax
    .byte 0x66, 0xea
    .long started_64
    .word 8
.balign 8
start_gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
start_gdt_pointer:
    .word start_gdt_pointer - start_gdt - 1
    .long START_PAGE + start_gdt - start_code
.set start_gdt_pointer_copy, START_PAGE + (start_gdt_pointer - start_code)
.global start_code_end
start_code_end:

.code64
started_64:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    lgdt [gdt_pointer]
    # One processor starts at a time; the one that starts it waits.
    mov rsp, [started_stack]
    xor ebp, ebp
    call started_cpu
    ud2

# Interrupts: a stub of 16 bytes for each vector, which pushes the error code, 0 where the processor
# pushes none, and the vector.
.balign 16
.global interrupt_stubs
interrupt_stubs:
.set vector, 0
.rept 256
    .balign 16
    .if vector != 8 && (vector < 10 || vector > 14) && vector != 17 && vector != 21 && vector != 29 && vector != 30
    push 0
    .endif
    push vector
    jmp interrupt_entry
    .set vector, vector + 1
.endr
.balign 16
interrupt_entry:
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    cld
    # 15 registers and 7 words above: the stack is aligned to 16.
    mov rdi, rsp
    call interrupt
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    add rsp, 16
    iretq

# switch_stacks(save: rdi, load: rsi): saves the calling code's stack in `save`, and goes on with the
# code whose stack was saved in `load`.
.global switch_stacks
switch_stacks:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

# load_word(address: rdi), store_word(address: rdi, word: rsi): accesses of programs. rdx: 1 if the
# access was made. An access that faults for good goes on at `access_failed`.
.global load_word
load_word:
    mov rax, [rdi]
    mov edx, 1
    ret
.global store_word
store_word:
    mov [rdi], rsi
    mov edx, 1
    ret
.global access_failed
access_failed:
    xor eax, eax
    xor edx, edx
    ret

-- Calls libc's `ffs` from loops, recursion and a coroutine. With the just-in-time compiler on, its code
-- calls `ffs` itself once a loop is hot; else the interpreter does. Prints `calls ffs N`.
local ffi = require "ffi"
ffi.cdef "int ffs(int);"
local C = ffi.C
local calls = 0

local function once(n)
    calls = calls + 1
    return C.ffs(n)
end

local function down(n)
    if n == 0 then return once(0) end
    return down(n - 1) + once(n)
end

local sum = 0
for i = 1, 4000 do sum = sum + once(i) end
for i = 1, 20 do sum = sum + down(40) end
local co = coroutine.wrap(function() for i = 1, 300 do coroutine.yield(once(i)) end end)
for _ = 1, 300 do sum = sum + co() end
for _, n in ipairs {1, 2, 3} do pcall(function() sum = sum + once(n) error "out" end) end
-- C code calls back into Lua, which calls C code.
table.sort({3, 1, 2}, function(a, b) sum = sum + once(a) return a < b end)
print("calls ffs " .. calls)
print("sum " .. sum)

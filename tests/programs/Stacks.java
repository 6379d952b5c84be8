import java.util.Map;
import java.util.TreeMap;
import java.util.zip.Deflater;

/**
 * Calls a native function from methods at several depths, and counts the calls by the machine's own
 * stack: the methods of this class, innermost first.
 *
 * <p>java Stacks ROUNDS
 *
 * <p>Prints `ready` first.
 */
public class Stacks {
    static final Map<String, Integer> COUNTED = new TreeMap<>();
    static final Deflater DEFLATER = new Deflater();
    static final byte[] TEXT = "one text and one text".getBytes();
    static final byte[] ROOM = new byte[100];

    static void count() {
        StringBuilder stack = new StringBuilder();
        for (StackTraceElement frame : new Throwable().getStackTrace()) {
            String name = frame.getMethodName();
            if (frame.getClassName().equals("Stacks") && !name.equals("count")) {
                stack.append(stack.length() == 0 ? "" : ";").append(name);
            }
        }
        COUNTED.merge(stack.toString(), 1, Integer::sum);
    }

    static int deflate() {
        count();
        DEFLATER.reset();
        DEFLATER.setInput(TEXT);
        DEFLATER.finish();
        return DEFLATER.deflate(ROOM);
    }

    static int one(int n) {
        return deflate() + n;
    }

    static int other(int n) {
        return deflate() ^ n;
    }

    // More arguments than fit into registers: the interpreter and compiled code store them
    // differently.
    static int down(int n, boolean isOne, long a, long b, long c, long d, long e, long f, long g) {
        if (n > 0) {
            return down(n - 1, isOne, b, c, d, e, f, g, a) + 1;
        }
        return (isOne ? one(n) : other(n)) + (int) (a + b + c + d + e + f + g);
    }

    static int left(int n) {
        return down(n % 5, true, 1, 2, 3, 4, 5, 6, 7);
    }

    static int right(int n) {
        return down(n % 7, false, 7, 6, 5, 4, 3, 2, 1);
    }

    static int round(int n) {
        return left(n) + (n % 3 == 0 ? right(n) : 0);
    }

    public static void main(String[] arguments) {
        System.out.println("ready");
        int sum = 0;
        for (int n = 0; n < Integer.parseInt(arguments[0]); n++) {
            sum += round(n);
        }
        StringBuilder text = new StringBuilder();
        COUNTED.forEach((stack, n) -> text.append("calls " + stack + " " + n + "\n"));
        System.out.print(text.append("sum " + sum + "\n"));
    }
}

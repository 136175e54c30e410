import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.LongAdder;

/**
 * The peer fork-join-pool of the area compute: Java's ForkJoinPool with two threads.
 *
 * <p>"java ForkJoin PRODUCERS TASKS MILLISECONDS" runs rounds of TASKS, which threads outside the pool submit, for that long. Before
 * that, it runs rounds for three seconds, so that the code is compiled. It prints the tasks, the seconds, and the seconds of CPU time.
 */
public final class ForkJoin {
    private static final int THREADS = 2;
    private static final long WARM_UP_NS = 3_000_000_000L;

    private static final LongAdder RAN = new LongAdder();

    public static void main(String[] args) throws InterruptedException {
        int producers = Integer.parseInt(args[0]);
        long tasks = Long.parseLong(args[1]);
        ForkJoinPool pool = new ForkJoinPool(THREADS);
        rounds(pool, producers, tasks, WARM_UP_NS);
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long begin = System.nanoTime();
        long cpu = system.getProcessCpuTime();
        long done = rounds(pool, producers, tasks, Long.parseLong(args[2]) * 1_000_000);
        double seconds = (System.nanoTime() - begin) / 1e9;
        System.out.println(done + " " + seconds + " " + (system.getProcessCpuTime() - cpu) / 1e9);
    }

    /** Runs rounds for so long, and returns the number of their tasks. */
    private static long rounds(ForkJoinPool pool, int producers, long tasks, long ns) throws InterruptedException {
        long begin = System.nanoTime();
        long done = 0;
        do {
            round(pool, producers, tasks);
            done += tasks;
        } while (System.nanoTime() - begin < ns);
        return done;
    }

    private static void round(ForkJoinPool pool, int producers, long tasks) throws InterruptedException {
        long sum = RAN.sum() + tasks;
        Thread[] threads = new Thread[producers];
        for (int producer = 0; producer < producers; producer++) {
            long share = (tasks + producer) / producers;
            threads[producer] = new Thread(() -> submit(pool, share));
            threads[producer].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        while (RAN.sum() < sum) {
            Thread.sleep(0, 200_000);
        }
    }

    private static void submit(ForkJoinPool pool, long tasks) {
        for (long number = 0; number < tasks; number++) {
            long state = number;
            pool.execute(() -> run(state));
        }
    }

    /** As in the other peers: a step of a generator, and a count. */
    private static void run(long state) {
        long next = state * 0x5851f42d4c957f2dL + 0x14057b7ef767814fL;
        // The result is used, so that it is computed.
        if (next == 0) {
            throw new IllegalStateException();
        }
        RAN.increment();
    }
}

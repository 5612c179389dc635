import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;

/**
 * A member on JGroups' SEQUENCER, for the bench: commands on stdin, answers on stdout.
 *
 * <p>JGroupsMember STACK INDEX MEMBERS FIRST, where FIRST is a file that the first member makes when
 * it is in the group. The others wait for it, so that they join a group instead of founding one each,
 * which JGroups would merge only after many seconds, and so that the first is the sequencer.
 */
public final class JGroupsMember extends ReceiverAdapter {
    static final int HEAD = 16;
    static final int SAMPLES_MAX = 2000;
    static final byte DATA = 0;
    static final byte END = 1;
    static final byte WARMING = 2;
    static final byte WARM = 3;
    static final int WARM_COUNT = 60_000;
    static final long SECOND = 1_000_000_000L;
    static final OperatingSystemMXBean MACHINE =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** What is counted in one round. JGroups delivers one message at a time. */
    static final class Round {
        final boolean probe;
        final int number;
        final int senders;
        final long stride;
        final double[] samples = new double[SAMPLES_MAX];
        final CountDownLatch over = new CountDownLatch(1);
        int sampled;
        int ends;
        long delivered;
        long heard;
        long firstNs;
        long lastNs;
        long digest = 0xcbf29ce484222325L;

        Round(boolean probe, int number, int senders, double expected) {
            this.probe = probe;
            this.number = number;
            this.senders = senders;
            stride = expected > SAMPLES_MAX ? (long) (expected / SAMPLES_MAX) + 1 : 1;
        }
    }

    final byte me;
    final int members;
    final boolean digesting = System.getenv("UNISONO_BENCH_DIGEST") != null;
    final JChannel channel;
    final CountDownLatch warm = new CountDownLatch(1);
    Round now;
    volatile boolean together;

    JGroupsMember(String stack, int index, int members) throws Exception {
        this.me = (byte) index;
        this.members = members;
        channel = new JChannel(stack);
        channel.setReceiver(this);
    }

    static synchronized void tell(String told) {
        System.out.println(told);
        System.out.flush();
    }

    static void trouble(String what) {
        tell("{\"trouble\": \"jgroups: " + what.replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}");
    }

    @Override
    public void viewAccepted(View view) {
        if (together && view.size() < members) trouble("a member left the group");
        together = view.size() == members;
    }

    synchronized void begin(Round round) {
        now = round;
        notifyAll();
    }

    /** The round that counts; others may have read their commands before us, so this waits for ours. */
    synchronized Round current() {
        try {
            while (now == null) wait();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        return now;
    }

    @Override
    public void receive(Message message) {
        if (message.getLength() < HEAD) return;
        byte[] raw = message.getRawBuffer();
        int at = message.getOffset();
        if (raw[at] == WARMING) return;
        if (raw[at] == WARM) {
            warm.countDown();
            return;
        }
        Round round = current();
        ByteBuffer payload = ByteBuffer.wrap(raw, at, HEAD);
        if (payload.getInt(at + 1) != round.number) return;
        long ns = System.nanoTime();
        if (raw[at] == END) {
            if (++round.ends == round.senders) {
                begin(null);
                round.over.countDown();
            }
            return;
        }
        if (round.delivered++ == 0) round.firstNs = ns;
        round.lastNs = ns;
        if (round.probe && raw[at + 13] != me && round.heard++ % round.stride == 0
                && round.sampled < SAMPLES_MAX)
            round.samples[round.sampled++] = (ns - payload.getLong(at + 5)) / 1000.0;
        if (digesting)
            for (int i = 5; i < HEAD; i++)
                round.digest = (round.digest ^ (raw[at + i] & 0xff)) * 0x100000001b3L;
    }

    /** A new array each: JGroups keeps it until all have it. Blocks while there are no credits. */
    void say(int size, byte kind, int round, long stamp) throws Exception {
        byte[] payload = new byte[size];
        ByteBuffer.wrap(payload).put(kind).putInt(round).putLong(stamp).put(me);
        channel.send(new Message(null, null, payload));
    }

    static void sleepUntil(long ns) {
        for (long left; (left = ns - System.nanoTime()) > 0; ) LockSupport.parkNanos(left);
    }

    long sendAtOnce(int size, int round, long end) throws Exception {
        long sent = 0;
        for (; System.nanoTime() < end; sent++) say(size, DATA, round, sent);
        return sent;
    }

    /**
     * Evenly, each when it is due; above a thousand a second those of a millisecond together. What
     * could not be said in time, because there is no room, is not made up for.
     */
    long sendEvenly(int size, int round, long begin, long end, double rate) throws Exception {
        double step = rate > 1000 ? SECOND / 1000.0 : SECOND / rate;
        long sent = 0;
        for (long turn = 0; ; turn++) {
            long due = begin + (long) (step * turn);
            if (due >= end || System.nanoTime() >= end) return sent;
            sleepUntil(due);
            long upto = (long) ((turn + 1) * step * rate / SECOND + 1e-6);
            for (; sent < upto && System.nanoTime() < end; sent++) say(size, DATA, round, System.nanoTime());
        }
    }

    /** Java is fast only after a while: the first member sends until its compiler has seen it all. */
    void warmUp() throws Exception {
        while (!together) Thread.sleep(20);
        if (me == 0) {
            for (int i = 0; i < WARM_COUNT; i++) say(i % 4 == 0 ? 1000 : 64, WARMING, 0, i);
            say(HEAD, WARM, 0, 0);
        }
        warm.await();
        tell("{\"ready\": true}");
    }

    void obey(String[] words) throws Exception {
        boolean probe = words[0].equals("probe");
        if (words.length != (probe ? 8 : 7)) {
            trouble("not a command");
            return;
        }
        int number = Integer.parseInt(words[1]);
        long begin = Long.parseLong(words[2]);
        double seconds = Double.parseDouble(words[3]);
        int size = Integer.parseInt(words[4]);
        double rate = probe ? Double.parseDouble(words[5]) : 0;
        boolean sends = words[words.length - 2].equals("1");
        int senders = Integer.parseInt(words[words.length - 1]);
        long end = begin + (long) (seconds * SECOND);
        long cpu = MACHINE.getProcessCpuTime();
        Round round = new Round(probe, number, senders, rate * seconds * (senders - (sends ? 1 : 0)));
        begin(round);
        sleepUntil(begin);
        long sent = 0;
        if (sends) {
            sent = probe ? sendEvenly(size, number, begin, end, rate) : sendAtOnce(size, number, end);
            say(HEAD, END, number, sent);
        }
        round.over.await();
        tell(answer(round, sent, MACHINE.getProcessCpuTime() - cpu));
    }

    String answer(Round round, long sent, long cpu) throws Exception {
        StringBuilder told = new StringBuilder();
        told.append(String.format("{\"did\": \"%s\", \"round\": %d, \"cpu_ns\": %d, ",
                round.probe ? "probe" : "load", round.number, cpu));
        if (round.probe) {
            told.append(String.format("\"count\": %d, \"samples_us\": [", round.heard));
            for (int i = 0; i < round.sampled; i++)
                told.append(i == 0 ? "" : ", ")
                        .append(String.format(Locale.ROOT, "%.1f", round.samples[i]));
            told.append("]");
        } else {
            told.append(String.format(
                    "\"sent\": %d, \"delivered\": %d, \"first_ns\": %d, \"last_ns\": %d, \"rss_kb\": %s",
                    sent, round.delivered, round.firstNs, round.lastNs, rssPeakKb()));
        }
        if (digesting) told.append(String.format(", \"digest\": \"%016x\"", round.digest));
        return told.append("}").toString();
    }

    static String rssPeakKb() throws Exception {
        for (String line : Files.readAllLines(Paths.get("/proc/self/status")))
            if (line.startsWith("VmHWM:")) return line.split("\\s+")[1];
        return "0";
    }

    public static void main(String[] words) throws Exception {
        int index = Integer.parseInt(words[1]);
        Path first = Paths.get(words[3]);
        JGroupsMember member = new JGroupsMember(words[0], index, Integer.parseInt(words[2]));
        while (index > 0 && !Files.exists(first)) Thread.sleep(20);
        member.channel.connect("bench");
        if (index == 0) Files.createFile(first);
        member.warmUp();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null && !line.equals("quit"); ) {
            try {
                member.obey(line.trim().split("\\s+"));
            } catch (Exception error) {
                trouble(error.toString());
            }
        }
        // Members go one by one, and a farewell waits for those who went: the process is enough.
        Runtime.getRuntime().halt(0);
    }
}

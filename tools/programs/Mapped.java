import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;

/** Files mapped by Java: java Mapped lookups|scan|heap plain|remedied HOW, as in misuse.py. The advice is given by JNA. */
public class Mapped {
    interface C extends com.sun.jna.Library {
        int madvise(Pointer address, long length, int advice);
    }

    static final int NORMAL = 0, RANDOM = 1, SEQUENTIAL = 2;

    interface Step {
        long next();
    }

    static Step lookups(boolean isRemedied) throws Exception {
        MappedByteBuffer map = map();
        if (isRemedied) advise(map, RANDOM);
        Random random = new Random(1);
        return () -> map.getLong(random.nextInt(map.capacity() / 4096) * 4096);
    }

    /** MADV_RANDOM for a scan, a MiB a unit: MADV_SEQUENTIAL. */
    static Step scan(boolean isRemedied) throws Exception {
        MappedByteBuffer map = map();
        advise(map, isRemedied ? SEQUENTIAL : RANDOM);
        int[] part = {0};
        return () -> {
            long sum = 0;
            int first = (part[0]++ % (map.capacity() >> 20)) << 20;
            for (int at = first; at < first + (1 << 20); at += 512) sum += map.getLong(at);
            return sum;
        };
    }

    /** A large heap of small pages, read at random, 100 000 reads a unit; huge pages come by an option of the JVM. */
    static Step heap(boolean isRemedied) {
        long[] all = new long[80 << 20];
        for (int at = 0; at < all.length; at += 64) all[at] = at;
        Random random = new Random(1);
        return () -> {
            long sum = 0;
            for (int read = 0; read < 100_000; read++) sum += all[random.nextInt(all.length)];
            return sum;
        };
    }

    /** Windows of 64 KiB mapped one by one, 62 000 of them: all of the file by one. 1 000 looks a unit. */
    static Step maps(boolean isRemedied) throws Exception {
        FileChannel file = new RandomAccessFile("matrix.bin", "r").getChannel();
        MappedByteBuffer[] windows = new MappedByteBuffer[62_000];
        MappedByteBuffer all = map();
        for (int number = 0; number < windows.length; number++) {
            // Each second page, as neighbours become one mapping.
            windows[number] = isRemedied ? all : file.map(FileChannel.MapMode.READ_ONLY, 8192L * number, 4096);
        }
        Random random = new Random(1);
        return () -> {
            long sum = 0;
            for (int look = 0; look < 1000; look++) sum += windows[random.nextInt(windows.length)].get(8);
            return sum;
        };
    }

    static MappedByteBuffer map() throws Exception {
        FileChannel file = new RandomAccessFile("matrix.bin", "r").getChannel();
        return file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
    }

    static void advise(MappedByteBuffer map, int advice) {
        Native.load("c", C.class).madvise(Native.getDirectBufferPointer(map), map.capacity(), advice);
    }

    public static void main(String[] args) throws Exception {
        boolean isRemedied = args[1].equals("remedied");
        Step step = switch (args[0]) {
            case "lookups" -> lookups(isRemedied);
            case "scan" -> scan(isRemedied);
            case "maps" -> maps(isRemedied);
            default -> heap(isRemedied);
        };
        step.next();
        Files.write(Path.of("ready"), new byte[0]);
        long started = System.nanoTime(), done = 0;
        String[] how = args[2].split("=");
        double most = how.length > 1 ? Double.parseDouble(how[1]) : 0;
        while (!(how[0].equals("n") && done >= most) && !(how[0].equals("s") && System.nanoTime() - started >= most * 1e9)) {
            step.next();
            done++;
        }
        System.out.println(done + " " + (System.nanoTime() - started) / 1e9);
    }
}

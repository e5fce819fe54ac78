// Each value doubled, by Java's com.sun.net.httpserver; the addresses are those of fastapi_model.py.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

public class Model {
    static final Map<String, Integer> refused = new ConcurrentHashMap<>();
    static final Pattern NUMBER = Pattern.compile("\\d+(?=[\\],])");

    static void answer(HttpExchange exchange) throws java.io.IOException {
        if (exchange.getRequestURI().getPath().equals("/large")
            && Integer.parseInt(exchange.getRequestHeaders().getFirst("Content-Length")) > 1_000_000) {
            exchange.sendResponseHeaders(413, -1);
            exchange.close();
            return;
        }
        String body = new String(exchange.getRequestBody().readAllBytes());
        int[] rows = NUMBER.matcher(body).results().mapToInt(one -> Integer.parseInt(one.group())).toArray();
        String path = exchange.getRequestURI().getPath();
        String[] parts = path.equals("/large") ? new String[] {"200", "0", "any"} : path.split("/")[2].split("-");
        boolean isMeant = parts[2].equals("any")
            ? rows.length > 0
            : Arrays.stream(rows).anyMatch(row -> row == Integer.parseInt(parts[2]));
        if (isMeant && refused.merge(path, 1, Integer::sum) <= Integer.parseInt(parts[1])) {
            if (parts[0].equals("raise")) throw new IllegalStateException(parts[2]);
            exchange.sendResponseHeaders(Integer.parseInt(parts[0]), -1);
            exchange.close();
            return;
        }
        String doubled = Arrays.stream(rows).mapToObj(row -> "" + 2 * row).collect(Collectors.joining(",", "[", "]"));
        exchange.sendResponseHeaders(200, 0);
        exchange.getResponseBody().write(doubled.getBytes());
        exchange.close();
    }

    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 0);
        server.createContext("/").setHandler(Model::answer);
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}

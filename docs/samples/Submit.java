import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

public class Submit {
  public static void main(String[] args) throws Exception {
    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
        .connectTimeout(Duration.ofSeconds(5)).build();
    HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("BASE_URL") + "/capital/ingest"))
        .timeout(Duration.ofSeconds(15))
        .header("Authorization", "Bearer " + System.getenv("API_KEY"))
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", '"' + args[1] + '"')
        .POST(HttpRequest.BodyPublishers.ofFile(Path.of(args[0]))).build();
    for (int attempt = 0; attempt < 8; attempt++) {
      long wait = Math.min(1L << attempt, 60);
      try {
        HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() == 202) {
          System.out.println(answer.headers().firstValue("X-Request-Id").orElse(""));
          System.exit(0);
        }
        System.err.println(answer.statusCode() + " " + answer.body());
        if (!List.of(408, 429).contains(answer.statusCode()) && answer.statusCode() < 500) System.exit(1);
        String after = answer.headers().firstValue("Retry-After").orElse("");
        if (after.matches("\\d{1,4}")) wait = Long.parseLong(after);
      } catch (IOException lost) {
        System.err.println("no answer: " + lost);
      }
      Thread.sleep(wait * 1000 + (long) (Math.random() * 1000));
    }
    System.exit(2);
  }
}

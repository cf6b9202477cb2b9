import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.nio.file.*;
import java.time.Duration;
import java.util.regex.*;

public class Follow {
  static final Pattern OUTCOME = Pattern.compile("\"request_id\":\"(\\w+)\"[^}]*?\"state\":\"(\\w+)\"");
  static final Pattern NEXT = Pattern.compile("\"next_cursor\":\"([\\w-]+)\"");

  public static void main(String[] args) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    Path file = Path.of(args[0]), made = Path.of(args[0] + ".new");
    String cursor = Files.exists(file) ? Files.readString(file) : "";
    while (true) {
      URI uri = URI.create(System.getenv("BASE_URL") + "/capital/outcomes?cursor=" + cursor);
      HttpRequest request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(45))
          .header("Authorization", "Bearer " + System.getenv("API_KEY")).header("Prefer", "wait=30").build();
      try {
        HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        int status = answer.statusCode();
        if (status < 500 && status != 200 && status != 408 && status != 429)
          throw new IllegalStateException(answer.body());
        Matcher next = NEXT.matcher(answer.body());
        if (status == 200 && next.find()) {
          OUTCOME.matcher(answer.body()).results()
              .forEach(outcome -> System.out.println(outcome.group(1) + " " + outcome.group(2)));
          cursor = next.group(1);
          Files.writeString(made, cursor);
          Files.move(made, file, StandardCopyOption.REPLACE_EXISTING);
          continue;
        }
      } catch (IOException lost) {
        System.err.println("no answer: " + lost);
      }
      Thread.sleep(5000);
    }
  }
}

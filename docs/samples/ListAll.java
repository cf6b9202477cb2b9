import java.net.URI;
import java.net.http.*;
import java.time.Duration;
import java.util.regex.*;

public class ListAll {
  static final Pattern ENTRY = Pattern.compile("\"request_id\":\"(\\w+)\"[^}]*?\"state\":\"(\\w+)\"");
  static final Pattern NEXT = Pattern.compile("\"next_cursor\":\"(\\w+)\"");

  public static void main(String[] args) throws Exception {
    for (String cursor = ""; cursor != null; ) {
      URI page = URI.create(System.getenv("BASE_URL") + "/capital/submissions?cursor=" + cursor);
      HttpRequest request = HttpRequest.newBuilder(page).timeout(Duration.ofSeconds(15))
          .header("Authorization", "Bearer " + System.getenv("API_KEY")).build();
      HttpResponse<String> answer =
          HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
      if (answer.statusCode() != 200) throw new IllegalStateException(answer.body());
      ENTRY.matcher(answer.body()).results()
          .forEach(entry -> System.out.println(entry.group(1) + " " + entry.group(2)));
      Matcher next = NEXT.matcher(answer.body());
      cursor = next.find() ? next.group(1) : null;
    }
  }
}

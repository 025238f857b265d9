import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines of a message's name, a version and JSON; writes its bytes as Kafka encodes them, in hex. */
public class EncodeMessages {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
    };

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", 3);
            short version = Short.parseShort(words[1]);
            JsonNode json = mapper.readTree(words[2]);
            Method read = converter(words[0]).getMethod("read", JsonNode.class, short.class);
            Message message = (Message) read.invoke(null, json, version);
            byte[] bytes = MessageUtil.toByteBufferAccessor(message, version).buffer().array();
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }

    static Class<?> converter(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"DataJsonConverter", "JsonConverter"}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException absent) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}

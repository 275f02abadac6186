import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLIntegrityConstraintViolationException;
import java.util.Scanner;
import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Peer is a service in Java that shares a producer group, and the transaction log, with a service in Go. It does what
 * docs/interop.md asks of it and no more: it never fences. Commands come on stdin, "send EVENT PLAN..." and "stop"; what
 * happens is told on stdout, on lines that begin with "> ".
 *
 * <p>Words of a plan: fail (roll back), lose (the end-transaction is lost), bare (no attempt).
 */
public final class Peer implements TransactionListener {
  private final String url = System.getenv("PEER_JDBC");
  private final String group = System.getenv("PEER_GROUP");
  private final String topic = System.getenv("PEER_TOPIC");
  private final String database;

  private Peer() throws SQLException {
    try (Connection c = DriverManager.getConnection(url);
        ResultSet r = c.createStatement().executeQuery("SELECT value FROM t_meta WHERE name = 'database_id'")) {
      r.next();
      database = r.getString(1);
    }
  }

  public static void main(String[] args) {
    try {
      run();
      System.exit(0);
    } catch (Exception e) { // the client's threads would keep the process alive
      e.printStackTrace();
      System.exit(1);
    }
  }

  private static void run() throws Exception {
    Peer peer = new Peer();
    TransactionMQProducer producer = new TransactionMQProducer(peer.group);
    producer.setNamesrvAddr(System.getenv("PEER_NAMESRV"));
    producer.setTransactionListener(peer);
    producer.setSendMsgTimeout(10_000);
    producer.setRetryTimesWhenSendFailed(0);
    producer.start();
    DefaultMQPushConsumer consumer = peer.consumer();
    tell("ready");
    Scanner in = new Scanner(System.in, StandardCharsets.UTF_8);
    while (in.hasNextLine()) {
      String line = in.nextLine();
      if (line.equals("stop")) {
        break;
      }
      String[] words = line.split(" ", 3);
      peer.send(producer, words[1], words.length > 2 ? words[2] : "");
    }
    consumer.shutdown();
    producer.shutdown();
  }

  private static synchronized void tell(String line) {
    System.out.println("> " + line);
    System.out.flush();
  }

  /** On a busy machine a start may fail for want of the name server's answer; then another one is made. */
  private DefaultMQPushConsumer consumer() throws Exception {
    for (int tries = 1; ; tries++) {
      DefaultMQPushConsumer c = newConsumer();
      try {
        c.start();
        return c;
      } catch (IllegalStateException | MQClientException e) {
        c.shutdown();
        if (tries == 5) {
          throw e;
        }
      }
    }
  }

  private DefaultMQPushConsumer newConsumer() throws MQClientException {
    DefaultMQPushConsumer c = new DefaultMQPushConsumer("java-" + topic);
    c.setInstanceName(UUID.randomUUID().toString());
    c.setNamesrvAddr(System.getenv("PEER_NAMESRV"));
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(topic, "*");
    c.registerMessageListener(
        (MessageListenerConcurrently)
            (messages, context) -> {
              for (MessageExt m : messages) {
                tell("got " + m.getUserProperty("TXMQ_EVENT_ID"));
              }
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    return c;
  }

  private void send(TransactionMQProducer producer, String event, String plan) throws Exception {
    Message m = new Message(topic, "{}".getBytes(StandardCharsets.UTF_8));
    m.putUserProperty("TXMQ_EVENT_ID", event);
    m.putUserProperty("TXMQ_DB", database);
    m.putUserProperty("TXMQ_BORN", Long.toString(System.currentTimeMillis()));
    if (!plan.contains("bare")) {
      m.putUserProperty("TXMQ_ATTEMPT", UUID.randomUUID().toString());
    }
    tell("sent " + event + " " + producer.sendMessageInTransaction(m, plan).getLocalTransactionState());
  }

  private static String attemptOf(Message m) {
    String attempt = m.getUserProperty("TXMQ_ATTEMPT");
    if (attempt != null) {
      return attempt;
    }
    try {
      byte[] name = (m.getTopic() + "\0" + m.getUserProperty("TXMQ_EVENT_ID")).getBytes(StandardCharsets.UTF_8);
      byte[] sum = MessageDigest.getInstance("SHA-256").digest(name);
      return "e-" + String.format("%064x", new BigInteger(1, sum)).substring(0, 62);
    } catch (java.security.NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  public LocalTransactionState executeLocalTransaction(Message m, Object plan) {
    LocalTransactionState state = transact(m, plan.toString());
    return plan.toString().contains("lose") ? LocalTransactionState.UNKNOW : state;
  }

  private LocalTransactionState transact(Message m, String plan) {
    boolean committing = false;
    try (Connection c = DriverManager.getConnection(url)) {
      c.setAutoCommit(false);
      try {
        log(c, m); // the first statement
        insertOrder(c, m);
        if (plan.contains("fail")) {
          c.rollback();
          return LocalTransactionState.ROLLBACK_MESSAGE;
        }
        committing = true;
        c.commit();
        return LocalTransactionState.COMMIT_MESSAGE;
      } catch (SQLIntegrityConstraintViolationException e) { // fenced, or committed before
        c.rollback();
        return LocalTransactionState.ROLLBACK_MESSAGE;
      }
    } catch (SQLException e) {
      return committing ? LocalTransactionState.UNKNOW : LocalTransactionState.ROLLBACK_MESSAGE;
    }
  }

  private void log(Connection c, Message m) throws SQLException {
    try (PreparedStatement s =
        c.prepareStatement(
            "INSERT INTO t_tx_log (attempt, topic, event_id, fenced_event, state, route, producer_group, created_at,"
                + " rescued_at) VALUES (?, ?, ?, NULL, 'COMMITTED', 'HALF', ?, UTC_TIMESTAMP(3), NULL)")) {
      s.setString(1, attemptOf(m));
      s.setString(2, m.getTopic());
      s.setString(3, m.getUserProperty("TXMQ_EVENT_ID"));
      s.setString(4, group);
      s.executeUpdate();
    }
  }

  private void insertOrder(Connection c, Message m) throws SQLException {
    try (PreparedStatement s = c.prepareStatement("INSERT INTO e2e_order (event) VALUES (?)")) {
      s.setString(1, m.getUserProperty("TXMQ_EVENT_ID"));
      s.executeUpdate();
    }
  }

  @Override
  public LocalTransactionState checkLocalTransaction(MessageExt m) {
    LocalTransactionState state = check(m);
    tell("checked " + m.getUserProperty("TXMQ_EVENT_ID") + " " + state);
    return state;
  }

  /** A row that is not there may still come, or belong to another database: UNKNOW, never a rollback. */
  private LocalTransactionState check(MessageExt m) {
    if (!database.equals(m.getUserProperty("TXMQ_DB"))) {
      return LocalTransactionState.UNKNOW;
    }
    try (Connection c = DriverManager.getConnection(url);
        PreparedStatement s = c.prepareStatement("SELECT topic, state, route FROM t_tx_log WHERE attempt = ?")) {
      s.setString(1, attemptOf(m));
      try (ResultSet r = s.executeQuery()) {
        if (!r.next() || !r.getString(1).equals(m.getTopic())) {
          return LocalTransactionState.UNKNOW;
        }
        String state = r.getString(2);
        String route = r.getString(3);
        if (state.equals("COMMITTED") && route.equals("HALF")) {
          return LocalTransactionState.COMMIT_MESSAGE;
        }
        if (state.equals("FENCED") || state.equals("COMMITTED") && route.equals("OUTBOX")) {
          return LocalTransactionState.ROLLBACK_MESSAGE;
        }
        return LocalTransactionState.UNKNOW;
      }
    } catch (SQLException e) {
      return LocalTransactionState.UNKNOW;
    }
  }
}

/** Why a server cannot be used: the signs of each cause, and its sentence for operators. */

/**
 * `signsOf` writes an error as lines such as `code=EAUTH`. If one matches `signs`, `sentence` is
 * shown; `{code}` becomes the captured text, or else the error's code, in parentheses. A named group
 * is a part of its own.
 */
export type Causes = Readonly<Record<string, readonly [signs: RegExp, sentence: string]>>;

/** The server answers, but refuses us. */
export const REFUSALS = {
  disk_full: [
    // 14031 is MongoDB's OutOfDiskSpace, 53100 PostgreSQL's, below FerretDB. Atlas has a quota.
    /^code=(14031|53100|ENOSPC)$|No space left on device|OutOfDiskSpace|over your space quota/m,
    'its disk is full, and it takes no writes{code}; make room there',
  ],
  tls_wanted: [
    /STARTTLS (?:command )?first|issue (?:a )?STARTTLS|TLS (?:is )?required|encryption (?:is )?required|requires? encryption/i,
    'it wants TLS{code}; ask for TLS in {setting}, and see SMTP_TLS where this is the relay',
  ],
  // RFC 4954 §6: the answer to any command.
  login_first: [
    // MongoDB has the code of a missing right.
    /^responseCode=(530)$|requires authentication/m,
    'it wants us to log in first{code}; check {login}',
  ],
  sender_refused: [
    /^command=MAIL FROM$/m,
    'it refuses our sender{code}; check MAIL_FROM, and what it lets our user send',
  ],
  login_refused: [
    // 18 is MongoDB's AuthenticationFailed. Atlas has one code for all errors of its own.
    /^code=(?:EAUTH|(18|401))$|^statusCode=(401)$|\b(WRONGPASS|NOAUTH)\b|without any password configured|no password is set|invalid password|^message=(?:bad auth|ERR operation not permitted)\b/im,
    'it refuses the login{code}; check {login}',
  ],
  login_way: [
    // MongoDB's MechanismUnavailable.
    /^code=334$|mechanism \S+ which is unknown or not enabled|Unsupported mechanism/im,
    'it does not let us log in in this way{code}; check authMechanism in {setting}, and the mechanisms of our user',
  ],
  proxy_refuses: [
    // Of undici: an answer to CONNECT, or 407 without a tunnel.
    /^message=Proxy .*\((?<status>\d{3})\)/m,
    'the proxy refuses ({status}); check its rules, and the user and password in HTTPS_PROXY',
  ],
  socks_refuses: [
    /^message=Socks\d proxy rejected connection - (\w+)|^message=Socks\d (Authentication failed)/m,
    'the proxy refuses{code}; check its rules, and proxyUsername and proxyPassword in {setting}',
  ],
  right_missing: [
    // 13 is MongoDB's Unauthorized.
    /^code=(13|403)$|not allowed to do action|^statusCode=(403)$|\b(NOPERM)\b/m,
    'we lack a right{code}; check {rights}',
  ],
  not_a_cluster: [
    /cluster (support disabled)/,
    'it is no Cluster{code}; write redis:// in {setting}',
  ],
  is_a_cluster: [
    /^message=(MOVED)\b/m,
    'it is one server of a Cluster{code}; write redis+cluster:// in {setting}',
  ],
  crosses_slots: [
    /^message=(CROSSSLOT)\b/m,
    'it is a Cluster{code}; write redis+cluster:// in {setting}',
  ],
  cluster_down: [
    /\b(CLUSTERDOWN)\b/,
    'its Cluster is down{code}; see its log, and whether each slot has a node that runs',
  ],
  loading: [
    /\b(LOADING)\b/,
    'it loads its data and takes no commands yet{code}; wait, and see its log if it does not end',
  ],
  script_runs: [
    /^message=(BUSY)\b/m,
    'a script of others runs in it and stops all commands{code}; end that with SCRIPT KILL',
  ],
  clients_full: [
    /max number of clients (?:\+ cluster connections )?reached|too many (?:open )?(?:connections|clients)/i,
    'it takes no further connections{code}; raise its limit of clients (maxclients), or end others',
  ],
  protected_mode: [
    /\b(DENIED)\b/,
    'it is in protected mode and lets only its own machine in{code}; give it a password, and that to {setting}',
  ],
  database_missing: [
    /DB index is out of range|invalid DB index/,
    'it has no database of this number{code}; correct the number at the end of {setting}',
  ],
  primary_lost: [
    /\b(MASTERDOWN)\b/,
    'it is a replica without its primary and takes no commands{code}; check that {setting} names the primary',
  ],
  primary_unnamed: [
    /^name=UnknownPrimaryError$[^]*^message=(?<names>.*)$/m,
    'it knows no primary of the name that {setting} has as name={names}; correct the name',
  ],
  is_a_sentinel: [
    /^name=IsSentinelError$/m,
    'it is a Sentinel, not a server with data; write redis+sentinel://…?name=… in {setting}, or the port of the primary',
  ],
  no_sentinel: [
    /unknown command [`'"]?(sentinel)\b/i,
    'it is no Sentinel{code}; give the port of the Sentinels in {setting} (mostly 26379), or write redis://',
  ],
  disk_fails: [
    /\b(MISCONF)\b/,
    'it cannot save to its disk and takes no writes{code}; make room there, see its log',
  ],
  replicas_missing: [
    /\b(NOREPLICAS)\b/,
    'too few of its replicas are there, and it takes no writes{code}; bring them back',
  ],
  memory_full: [
    /\b(OOM)\b/,
    'its memory is full, and it takes no writes{code}; raise maxmemory, or remove what else is in it',
  ],
  is_a_replica: [
    /\b(READONLY)\b/,
    'it is a replica{primary} and takes no writes{code}; check that {setting} names the primary',
  ],
  not_primary: [
    // MongoDB's NotWritablePrimary and NotPrimaryNoSecondaryOk.
    /^code=(10107|13435)$/m,
    'it is not the primary and takes no writes{code}; name the primary in {setting}, or all members without directConnection',
  ],
  shuts_down: [
    // MongoDB's ShutdownInProgress, PrimarySteppedDown, InterruptedAtShutdown, …DueToReplStateChange.
    /^code=(91|189|11600|11602)$/m,
    'it shuts down or steps down{code}; wait for the next primary',
  ],
  retry_writes: [
    // 301 is of DocumentDB; MongoDB without a replica set and Cosmos DB have code 20.
    /^code=(301)$|Transaction numbers are only allowed|retryable writes/im,
    'it knows no retryable writes{code}; write retryWrites=false in {setting}',
  ],
  requests_limited: [
    // Cosmos DB, and Upstash's Redis.
    /^code=(16500)$|Request rate is large|TooManyRequests|max (?:daily )?requests? limit exceeded/m,
    'it limits our requests{code}; give it more throughput',
  ],
  feature_missing: [
    // MongoDB's CommandNotFound and CommandNotSupported; 303 is of DocumentDB.
    /^code=(59|115|303)$/m,
    'it lacks a command that we need{code}; see which servers docs/stores.md names',
  ],
  command_missing: [
    /^message=ERR ((?:unknown|unsupported) command)/m,
    'it lacks a command that we need{code}{version}; use Redis 7.0 or newer without renamed commands',
  ],
} as const satisfies Causes;
export const ABSENCES = {
  server_too_old: [
    /reports maximum wire version (?<wire>\d+), but .* at least \d+ \(MongoDB (?<needed>[\d.]+)\)/,
    'it is as MongoDB {found} (wire version {wire}), and our driver needs {needed} or newer; use a newer server',
  ],
  server_too_new: [
    /reports minimum wire version (?<wire>\d+), but .* at most \d+ \(MongoDB (?<needed>[\d.]+)\)/,
    'it takes wire version {wire} at least, and our driver knows MongoDB up to {needed}; use a newer version of this service',
  ],
  no_load_balancer: [
    /load balancing mode/i,
    'it is no load balancer of MongoDB{code}; remove loadBalanced from {setting}',
  ],
  name_not_found: [
    // A failing resolver has a failing server's codes, but another system call.
    /^syscall=(?:query|getaddrinfo)|(ENOTFOUND|EAI_AGAIN|EDNS)/m,
    'the name is not found{code}; check the host in {setting}, and DNS',
  ],
  name_record: [
    /Text record|text records|DNS TXT|No addresses found at host|does not share hostname/,
    'the SRV or TXT record of its name cannot be used; correct it in DNS, or the host in {setting}',
  ],
  package_missing: [
    /module [`'"]?([\w@/.-]+)[`'"]? not found|find (?:module|package) '([^']+)'/i,
    'our image lacks a package{code}; remove the option that needs it from {setting}',
  ],
  not_http: [
    /^name=HTTPParserError$|HPE_\w+/m,
    'what answers there speaks no HTTP{code}; check host and port in {setting}',
  ],
  https_wanted: [
    /HTTP protocol is not allowed/,
    'plain HTTP is not allowed there; write https:// in {setting}',
  ],
  // Alerts of TLS (RFC 8446 §6).
  tls_settings: [
    /SSL (alert) number (40)\b/,
    'it takes none of our TLS versions and ciphers{code}; check its TLS settings',
  ],
  tls_version: [
    /SSL (alert) number (70)\b/,
    'it takes none of our TLS versions{code}; let it speak TLS 1.2 or newer',
  ],
  tls_name: [
    /SSL (alert) number (112)\b/,
    'it has no certificate for the name that we use{code}; check the host in {setting}',
  ],
  certificate_wanted: [
    /SSL (alert) number (116)\b/,
    'it wants a certificate of ours{code}; name one in {certificate}, or let it take user and password',
  ],
  certificate_refused: [
    /SSL (alert) number (4[2-68])\b/,
    'it does not take our certificate{code}; check {certificate}, and which CAs it trusts',
  ],
  tls_ended: [
    /SSL (alert) number (\d+)/,
    'it ends TLS{code}; check that it lets our address in (Atlas: IP access list), and its log',
  ],
  certificate_name: [
    /^code=(\w*ALTNAME\w*|HOSTNAME_MISMATCH)|does not match certificate/im,
    'its certificate is for another name{code}{certified}; use a name of the certificate in {setting}',
  ],
  certificate_ended: [
    /^code=(CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/m,
    'its certificate has ended or is not valid yet{code}; renew it there, and check the clocks',
  ],
  certificate_file: [
    /^code=(ERR_OSSL_\w+)$/m,
    'our certificate, its key or a CA cannot be read{code}; check the files that {certificate} names, and their password',
  ],
  file_unreadable: [
    /^message=(?:ENOENT|EACCES|EISDIR|ENOTDIR)\b.*?(?: '([^']+)')?$/m,
    'a file that {setting} names cannot be read{code}; mount it, or correct its path',
  ],
  certificate_untrusted: [
    /^code=(\w*(?:CERT_|_CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY|DECODE)|INVALID_CA|INVALID_PURPOSE)\w*)|certificate/im,
    'its certificate is not trusted{code}; give its CA in NODE_EXTRA_CA_CERTS (chart: caBundle)',
  ],
  tls_disagrees: [
    /\b(EPROTO|ETLS)\b|wrong version number|ssl routines|STARTTLS|^code=ERR_(?:SSL|TLS)_/im,
    'TLS cannot be agreed on{code}; check the port and whether TLS is meant in {setting}',
  ],
  connection_refused: [
    /(ECONNREFUSED)/,
    'the connection is refused{code}; check that it runs there, and host and port in {setting}',
  ],
  port_refused: [
    // By the fetch standard.
    /^message=(bad port)$/m,
    'web clients refuse this port{code}; check the port in {setting}, or let it listen at another',
  ],
  no_route: [
    /(EHOSTUNREACH|ENETUNREACH|ENETDOWN|EADDRNOTAVAIL)|connect (EPERM|EACCES)/,
    'there is no route{code}; check host and port in {setting}, the network and its policies',
  ],
  option_faulty: [
    /^name=Mongo(?:Parse|InvalidArgument|MissingCredentials)Error$/m,
    'an option in it contradicts what we need{code}; check {setting}',
  ],
} as const satisfies Causes;
export const NO_PRIMARY = {
  no_primary: [
    // 133 is of a mongos: FailedToSatisfyReadPreference.
    /^reason=ReplicaSetNoPrimary$|^code=(133)$/m,
    'no member of the replica set is the primary{code}; check the replica set, and {setting}',
  ],
} as const satisfies Causes;
/** Failures that may follow from another cause, which then counts more. */
export const VAGUE = {
  majority_missing: [
    /^name=(?:MongoWriteConcernError|NotDurableError)$|^code=(?:64|100)$/m,
    'no majority of its members acknowledges writes{code}; bring its members back, see rs.status()',
  ],
  no_answer: [
    /(ETIMEDOUT)|^name=\w*(?:Timeout|AbortError|DeadlineError)|time-?out|timed out|exceeded time limit/im,
    'no answer in time{code}; check that it runs there, that DNS answers, that firewalls and network policies let us through, and {setting}',
  ],
  connection_ended: [
    /(ECONNRESET|ECONNECTION|EPIPE)|^name=ConnectionEndedError$|closed|socket hang up|premature close/im,
    'it ended the connection{code}; check that it runs{tls}',
  ],
  error_answered: [
    /^name=(?:ReplyError|MongoServerError)$|^(?:responseCode|statusCode)=\d/m,
    'it answers with an error{code}; see `said` in the log here, its log, and {setting}',
  ],
} as const satisfies Causes;
export const UNKNOWN = 'it cannot be used{code}; see `said` in the log here, and check {setting}';

/** What no error says: our clients find it (`knownFailure`). */
export const FOUND = {
  speaks_other: 'what answers there is {spoken}; check host and port in {setting}',
  speaks_tls: 'it speaks TLS, and {setting} asks for none; ask for TLS there, or check the port',
  speaks_plain:
    'it speaks no TLS, and {setting} asks for it; write no TLS there, or check the port',
  set_name_differs:
    'it is of the replica set {found}, and {setting} has replicaSet={given}; correct that',
  not_of_a_set:
    'it is of no replica set, and {setting} has replicaSet={given}; remove that, or start the server with it',
  is_mongos: 'it is a mongos, and {setting} has replicaSet={given}; remove that',
  set_not_initiated: 'its replica set has no config yet; run rs.initiate() there',
} as const;

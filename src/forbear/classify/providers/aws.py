"""AWS through botocore: the code in the answer, or in a frame of an event stream (there in camel case)."""

from forbear.classify.rules import Rule
from forbear.core.failure import Kind

_BEDROCK = "Amazon Bedrock user guide: Troubleshooting API error codes"
_SDK = "AWS SDKs and Tools reference: Retry behavior; botocore's lists"

RULES = (
    Rule(
        kind=Kind.RATE_LIMITED,
        source=_SDK,
        codes=frozenset(
            {
                "throttling",
                "throttlingexception",
                "throttledexception",
                "requestthrottledexception",
                "toomanyrequestsexception",
                "provisionedthroughputexceededexception",
                "requestlimitexceeded",
                "bandwidthlimitexceeded",
                "limitexceededexception",
                "requestthrottled",
                "slowdown",
                "priorrequestnotcomplete",
                "ec2throttledexception",
            }
        ),
    ),
    Rule(
        kind=Kind.OVERLOADED,
        source=_BEDROCK,
        codes=frozenset({"modelnotreadyexception", "serviceunavailableexception", "mpagreementbeingcreated"}),
    ),
    Rule(
        kind=Kind.SERVER_ERROR,
        source=_BEDROCK,
        codes=frozenset({"internalserverexception", "modelstreamerrorexception"}),
        executed="maybe",
    ),
    # The first request still runs.
    Rule(kind=Kind.CONFLICT, source=_SDK, codes=frozenset({"transactioninprogressexception"}), executed="maybe"),
    Rule(
        kind=Kind.TIMEOUT,
        source=_SDK,
        codes=frozenset({"requesttimeout", "requesttimeoutexception", "modeltimeoutexception"}),
    ),
    # "Resubmit later": a quota of the account that other requests of it hold for now.
    Rule(kind=Kind.RATE_LIMITED, source=_BEDROCK, codes=frozenset({"servicequotaexceededexception"})),
    Rule(kind=Kind.INVALID_REQUEST, source=_BEDROCK, codes=frozenset({"validationexception"})),
    Rule(
        kind=Kind.TOO_LONG,
        source=_BEDROCK,
        codes=frozenset({"validationexception"}),
        statuses=frozenset({400}),
        texts=("input is too long", "too many input tokens"),
    ),
    Rule(
        kind=Kind.AUTH,
        source=_BEDROCK,
        codes=frozenset(
            {
                "accessdeniedexception",
                "expiredtokenexception",
                "unrecognizedclientexception",
                "invalidsignatureexception",
                "incompletesignature",
            }
        ),
    ),
    Rule(kind=Kind.NOT_FOUND, source=_BEDROCK, codes=frozenset({"resourcenotfoundexception"})),
    Rule(kind=Kind.CONFLICT, source=_BEDROCK, codes=frozenset({"conflictexception"}), transient=False),
)

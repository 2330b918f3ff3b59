"""`harness cluster fill`: what a CloudFormation stack made, written into the values of ray_cluster.yaml."""

import re
from pathlib import Path

from harness.cluster.cluster_file import read_cluster_file
from harness.errors import UserError
from harness.text.files import read_text, write_atomically

# Of deploy/aws/stack.yaml → the text before the value in the cluster file; all else in it, comments too, stays.
PLACES = {
    "ClusterName": r"cluster_name: ",
    "Region": r"    region: ",
    "Group": r"  security_group: &security_group ",
    "Image": r"  image: &image ",
    "Storage": r"  storage: &storage echo '",
    "HeadProfile": r"  head_profile: &head_profile \{Name: ",
    "WorkerProfile": r"  worker_profile: &worker_profile \{Name: ",
}


def fill(stack: str, path: Path, region: str | None = None) -> dict[str, str]:
    """What was written, by the stack's names. Raises UserError where the stack or the file is another."""
    region = region or read_cluster_file(path)["provider"].get("region")
    made, text = _outputs(stack, region), read_text(path, "a cluster file")
    if missing := [name for name in PLACES if name not in made]:
        raise UserError(f"stack {stack} must be one of deploy/aws/stack.yaml; it has no output {', '.join(missing)}")
    for name, place in PLACES.items():
        text, places = re.subn(rf"^({place})[^\s'}}]+", rf"\g<1>{made[name]}", text, count=1, flags=re.MULTILINE)
        if not places:
            raise UserError(f"{path} must have the lines of ray_cluster.yaml; it has no place for {name} ({place!r})")
    write_atomically(path, text)
    return {name: made[name] for name in PLACES}


def _outputs(stack: str, region: str | None) -> dict[str, str]:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise UserError("boto3 must be installed to ask AWS, and it is not; pip install boto3") from None
    try:
        found = boto3.session.Session(region_name=region).client("cloudformation").describe_stacks(StackName=stack)
    except (BotoCoreError, ClientError) as error:
        raise UserError(f"AWS has no stack {stack!r} for you in {region} (--region): {error}") from None
    return {each["OutputKey"]: each["OutputValue"] for each in found["Stacks"][0].get("Outputs", [])}

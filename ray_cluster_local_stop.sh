#!/bin/sh
# Runs on the head of ray_cluster_local.yaml: stops Ray on all machines, and MLflow. Run it before `ray down`, which stops Ray
# on the head only: the workers' daemons notice after a minute, and one process per worker would never end.
. ~/.depth_search_env
ray stop  # the head first, or its autoscaler would start the workers again
config=~/ray_bootstrap_config.yaml
for worker in $(python -c "import sys, yaml; print(*yaml.safe_load(open(sys.argv[1]))['provider']['worker_ips'])" $config); do
    ssh -n -i ~/ray_bootstrap_key.pem -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10 \
        "$worker" '. ~/.depth_search_env; ray stop' &
done
wait
kill -- -"$(cat ~/mlflow/pid)"

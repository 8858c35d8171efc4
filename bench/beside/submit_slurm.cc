// Submits one batch script COUNT times through Slurm's own library, as held jobs (like sbatch --hold). Each submission
// starts when the previous one is acknowledged.
//
//   SLURM_CONF=... submit_slurm COUNT
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: submit_slurm COUNT\n");
    return 2;
  }
  slurm_init(nullptr);
  char name[] = "true.sh", script[] = "#!/bin/sh\ntrue\n", folder[] = "/tmp", output[] = "/dev/null",
       path[] = "PATH=/usr/bin:/bin";
  char* environment[] = {path, nullptr};
  for (int left = std::atoi(argv[1]); left > 0; --left) {
    job_desc_msg_t job;
    slurm_init_job_desc_msg(&job);
    job.name = name;
    job.script = script;
    job.work_dir = folder;
    job.std_out = output;
    job.environment = environment;
    job.env_size = 1;
    job.user_id = ::getuid();
    job.group_id = ::getgid();
    job.min_nodes = 1;
    job.priority = 0;
    submit_response_msg_t* response = nullptr;
    if (slurm_submit_batch_job(&job, &response) != SLURM_SUCCESS) {
      std::fprintf(stderr, "submit_slurm: %s\n", slurm_strerror(slurm_get_errno()));
      return 1;
    }
    slurm_free_submit_response_response_msg(response);
  }
}

#!/bin/bash
# An example of a script that trains with Megatron-LM, for docs/audit.md: a model like Llama 3 8B on four nodes of eight GPUs.

GPUS_PER_NODE=8
NODES=${NODES:-4}
TP=${TP:-4}
PP=${PP:-2}

MODEL_ARGS=(
  --num-layers 32
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --seq-length 8192
  --max-position-embeddings 8192
  --position-embedding-type rope
  --rotary-base 500000
  --swiglu
  --normalization RMSNorm
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0
  --hidden-dropout 0
  --attention-backend flash
  --vocab-size 128256
  --tokenizer-type HuggingFaceTokenizer
  --tokenizer-model "$TOKENIZER"
)
TRAINING_ARGS=(
  --bf16
  --micro-batch-size 1
  --global-batch-size $((GPUS_PER_NODE * NODES * 4))
  --train-iters 1000
  --lr 3e-4
  --recompute-granularity full
  --recompute-method block
  --recompute-num-layers 8
  --log-interval 1
  --log-throughput
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size $PP
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NODES pretrain_gpt.py \
  "${MODEL_ARGS[@]}" \
  "${TRAINING_ARGS[@]}" \
  "${PARALLEL_ARGS[@]}" \
  --data-path "$DATA"
